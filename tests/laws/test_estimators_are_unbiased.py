"""Every estimator that claims it is unbiased, by exact enumeration of all two-token sequences."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.laws.two_steps import (
    NUM_SEQUENCES,
    REWARDS,
    VOCABULARY,
    TwoSteps,
    every_sequence,
    mean_under,
    one_token_at_a_time,
)
from tests.losses.loss_parts import policy_losses, replaced
from torch import Tensor

from posttrain.core.registry import build
from posttrain.losses.entropy_bonus import EntropyBonus

POLICY, BEHAVIOR = TwoSteps.random(0), TwoSteps.random(1)
UNBOUNDED: list[dict[str, Any]] = [
    {"name": "reinforce", "max_importance_weight": 0.0},
    {"name": "cispo", "clip_low": 1.0, "clip_high": 1e9},
    {"name": "clipped_policy_gradient", "clip_low": 1.0, "clip_high": 1e9, "max_importance_weight": 0.0},
]
WHOLE_SEQUENCES = {"name": "gspo", "clip_low": 1.0, "clip_high": 1e9, "length_normalized": False}
BOUNDED: list[dict[str, Any]] = [
    {"name": "reinforce", "max_importance_weight": 1.0},
    {"name": "reinforce", "max_importance_weight": 0.0, "mask_low": 0.5, "mask_high": 2.0},
    {"name": "cispo", "clip_high": 0.5},
    {"name": "clipped_policy_gradient"},
    {"name": "gspo", "clip_low": 1.0, "clip_high": 1e9},
]


def mean_gradient(spec: dict[str, Any], behavior: TwoSteps, rewards: Tensor = REWARDS) -> Tensor:
    terms = build("loss", spec)(every_sequence(POLICY, behavior, rewards)).terms["policy_loss"]
    return POLICY.gradient(mean_under(behavior, terms))


def expected_reward_gradient() -> Tensor:
    return POLICY.gradient((POLICY.logprobs().sum(dim=1).exp() * REWARDS).sum())


@pytest.mark.parametrize("name", policy_losses())
def test_on_policy_every_policy_loss_descends_to_more_expected_reward(name: str) -> None:
    wanted = -expected_reward_gradient()
    assert wanted.abs().max() > 0.1
    assert torch.allclose(mean_gradient({"name": name}, POLICY), wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", policy_losses())
def test_on_policy_a_baseline_changes_no_mean(name: str) -> None:
    shifted = mean_gradient({"name": name}, POLICY, REWARDS - 17.0)
    assert torch.allclose(shifted, mean_gradient({"name": name}, POLICY), rtol=0, atol=1e-12)


@pytest.mark.parametrize("spec", UNBOUNDED, ids=lambda spec: spec["name"])
def test_unbounded_token_weights_are_unbiased_one_token_at_a_time(spec: dict[str, Any]) -> None:
    """Off-policy: each token drawn by the policy, what comes before and after it as it was sampled."""
    wanted = -POLICY.gradient(one_token_at_a_time(POLICY, BEHAVIOR, lambda _: REWARDS))
    assert wanted.abs().max() > 0.1
    assert torch.allclose(mean_gradient(spec, BEHAVIOR), wanted, rtol=0, atol=1e-12)
    assert (wanted + expected_reward_gradient()).abs().max() > 0.01


def test_unbounded_weights_of_whole_sequences_are_unbiased_off_policy() -> None:
    assert torch.allclose(mean_gradient(WHOLE_SEQUENCES, BEHAVIOR), -expected_reward_gradient(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("spec", BOUNDED, ids=str)
def test_bounds_trade_bias_for_variance(spec: dict[str, Any]) -> None:
    """None of these claims to be unbiased off-policy, and none is."""
    unbiased = -POLICY.gradient(one_token_at_a_time(POLICY, BEHAVIOR, lambda _: REWARDS))
    assert (mean_gradient(spec, BEHAVIOR) - unbiased).abs().max() > 0.01


@pytest.mark.parametrize("behavior", [POLICY, BEHAVIOR], ids=["on_policy", "off_policy"])
def test_entropy_bonus_has_the_gradient_of_the_entropy_at_the_prefixes_that_were_sampled(behavior: TwoSteps) -> None:
    def entropies() -> tuple[Tensor, Tensor]:
        """Of the first token, and `[V]` of the second given the first."""
        tables = (torch.log_softmax(logits, dim=-1) for logits in (POLICY.first, POLICY.second))
        first, second = (-(table.exp() * table).sum(dim=-1) for table in tables)
        return first, second

    first, second = entropies()
    by_token = torch.stack([first.expand(NUM_SEQUENCES), second.repeat_interleave(VOCABULARY)], dim=1)
    given = replaced(every_sequence(POLICY, behavior, REWARDS), entropy=by_token.reshape(-1))
    found = POLICY.gradient(mean_under(behavior, EntropyBonus(0.2)(given).terms["entropy_loss"]))
    first, second = entropies()
    prefixes = torch.log_softmax(behavior.first, dim=-1).exp().detach()
    wanted = -0.2 * POLICY.gradient(first + (prefixes * second).sum())
    assert wanted.abs().max() > 0.01
    assert torch.allclose(found, wanted, rtol=0, atol=1e-12)
