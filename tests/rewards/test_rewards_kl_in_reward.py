"""KL as a cost of each sampled token, and by exact enumeration that its gradient is the KL's (law L5)."""

from __future__ import annotations

import dataclasses
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest
from tests.rewards.parts import NOTHING, attempt

from posttrain.core.errors import NonFiniteError
from posttrain.core.types import Annotations, FloatArray, Trajectory
from posttrain.rewards.kl_in_reward import kl_rewards
from posttrain.rewards.token_rewards import returns_to_go

V = 3
"""Vocabulary of the enumerated policies: V first tokens, then V second tokens after each."""

Logits = npt.NDArray[np.float64]  # [1 + V, V], a row for each context


def notes(reference: list[float], coefficient: float = 0.5, policy: list[float] | None = None) -> Annotations:
    """Of attempt g/0 with one turn: two tokens of prompt, then as many as are given."""

    def row(values: list[float]) -> FloatArray:
        return np.asarray([np.nan, np.inf, *values], np.float32)

    return Annotations(
        reference_logprobs={"g/0": row(reference)},
        policy_logprobs={} if policy is None else {"g/0": row(policy)},
        kl_in_reward=coefficient,
    )


def test_each_token_costs_the_coefficient_times_its_log_ratio() -> None:
    tried = attempt(1.0, [2])  # sampled at log-prob −1 each
    assert kl_rewards(tried, notes([-1.5, -0.25])).tolist() == [-0.25, 0.375]


def test_trainers_logprobs_go_before_the_samplers() -> None:
    assert kl_rewards(attempt(1.0, [2]), notes([-1.0, -1.0], policy=[-0.5, -3.0])).tolist() == [-0.25, 1.0]


def test_without_a_coefficient_no_reference_is_needed() -> None:
    assert kl_rewards(attempt(1.0, [3]), NOTHING).tolist() == [0, 0, 0]


def test_missing_reference_is_our_own_mistake() -> None:
    with pytest.raises(AssertionError, match="no reference log-probs of trajectory g/0"):
        kl_rewards(attempt(1.0), Annotations(kl_in_reward=0.1))


def test_logprob_that_is_not_finite_is_refused_by_name() -> None:
    with pytest.raises(NonFiniteError, match="the KL of trajectory g/0"):
        kl_rewards(attempt(1.0, [2]), notes([-1.0, float("nan")]))


def log_softmax(logits: Logits) -> Logits:
    shifted = logits - logits.max(-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))


def kl_of_sequences(logits: Logits, reference: Logits) -> float:
    logp, logq = log_softmax(logits), log_softmax(reference)
    pairs = list(product(range(V), range(V)))
    log_ratios = [logp[0, a] + logp[1 + a, b] - logq[0, a] - logq[1 + a, b] for a, b in pairs]
    chances = [np.exp(logp[0, a] + logp[1 + a, b]) for a, b in pairs]
    return float(np.dot(chances, log_ratios))


def gradient_of_kl(logits: Logits, reference: Logits) -> Logits:
    """By central differences."""
    result = np.zeros_like(logits)
    for place in np.ndindex(logits.shape):
        step = np.zeros_like(logits)
        step[place] = 1e-5
        result[place] = (kl_of_sequences(logits + step, reference) - kl_of_sequences(logits - step, reference)) / 2e-5
    return result


def two_tokens(logp: Logits, logq: Logits, a: int, b: int) -> tuple[Trajectory, Annotations]:
    mine, its = [logp[0, a], logp[1 + a, b]], [logq[0, a], logq[1 + a, b]]
    tried = attempt(0.0, [2])
    tried = dataclasses.replace(tried, behavior_logprobs=np.asarray([0, 0, *mine], np.float64))  # exact
    return tried, Annotations(reference_logprobs={"g/0": np.asarray([0, 0, *its], np.float64)}, kl_in_reward=1.0)


@pytest.mark.parametrize("seed", range(3))
def test_expected_policy_gradient_of_the_cost_is_the_gradient_of_the_kl(seed: int) -> None:
    """Over all sequences of two tokens: E[Σ_t return_t ∇ log policy(token_t)] = −∇ KL, later tokens' KL included."""
    draw = np.random.default_rng(seed)
    logits, reference = draw.normal(size=(2, 1 + V, V))
    logp, logq = log_softmax(logits), log_softmax(reference)
    found = np.zeros_like(logits)
    for a, b in product(range(V), range(V)):
        chance = np.exp(logp[0, a] + logp[1 + a, b])
        returns = returns_to_go(*two_tokens(logp, logq, a, b))
        for context, token, earned in ((0, a, returns[0]), (1 + a, b, returns[1])):
            found[context] += chance * earned * (np.eye(V)[token] - np.exp(logp[context]))
    assert found == pytest.approx(-gradient_of_kl(logits, reference), abs=1e-8)
