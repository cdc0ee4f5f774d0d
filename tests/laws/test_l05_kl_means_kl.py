"""L5: each KL option has the gradient of the KL it names, by exact enumeration of a toy vocabulary."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from posttrain.losses.base import LossInputs
from posttrain.losses.clipped_policy_gradient import ClippedPolicyGradient
from posttrain.losses.kl import KLEstimator, kl_estimate, kl_term

VOCABULARY = 7
ESTIMATORS: tuple[KLEstimator, ...] = ("k1", "k2", "k3")


def distribution(seed: int) -> Tensor:
    """`[V]` log-probs."""
    logits = torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.log_softmax(logits, dim=-1)


def exact_kl(policy: Tensor, reference: Tensor) -> Tensor:
    return (policy.exp() * (policy - reference)).sum()


def gradient_of(value: Tensor, logits: Tensor) -> Tensor:
    return torch.autograd.grad(value, logits)[0]


def expected_term(estimator: KLEstimator, policy: Tensor, reference: Tensor, behavior: Tensor) -> Tensor:
    """Mean of the term over all tokens that the behaviour policy could draw."""
    weights = (policy - behavior).exp().detach()
    return (behavior.exp() * kl_term(estimator, policy, reference, weights)).sum()


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("on_policy", [True, False], ids=["on_policy", "off_policy"])
def test_gradient_of_the_term_is_the_gradient_of_the_kl(estimator: KLEstimator, on_policy: bool) -> None:
    logits = distribution(0).requires_grad_()
    policy, reference = torch.log_softmax(logits, dim=-1), distribution(1)
    behavior = policy.detach() if on_policy else distribution(2)
    wanted = gradient_of(exact_kl(policy, reference), logits)
    policy = torch.log_softmax(logits, dim=-1)
    ours = gradient_of(expected_term(estimator, policy, reference, behavior), logits)
    assert wanted.abs().max() > 0.1
    assert torch.allclose(ours, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_mean_of_the_estimate_is_the_kl(estimator: KLEstimator) -> None:
    policy, reference, behavior = distribution(0), distribution(1), distribution(2)
    kl = exact_kl(policy, reference)
    assert torch.allclose((policy.exp() * kl_estimate(estimator, policy, reference)).sum(), kl)
    assert torch.allclose(expected_term(estimator, policy, reference, behavior), kl)


def test_k2_is_close_to_the_kl_for_close_policies() -> None:
    policy = distribution(0)
    reference = torch.log_softmax(policy + 0.01 * distribution(1), dim=-1)
    estimate = (policy.exp() * kl_estimate("k2", policy, reference)).sum()
    assert torch.allclose(estimate, exact_kl(policy, reference), rtol=0.05)


def test_k3_is_never_negative() -> None:
    assert kl_estimate("k3", distribution(0), distribution(1)).min() >= 0.0


def descended_kl(coefficient: float, estimator: KLEstimator) -> float:
    """KL to the reference after descending reward + coefficient · KL, over all tokens as if each were drawn."""
    reference = distribution(1)
    rewards = distribution(3)
    loss = ClippedPolicyGradient(kl_coefficient=coefficient, kl_estimator=estimator)
    logits = reference.clone().requires_grad_()
    for _ in range(200):
        policy = torch.log_softmax(logits, dim=-1)
        behavior = policy.detach()
        inputs = LossInputs(policy, behavior, rewards, torch.zeros(VOCABULARY, dtype=torch.int64), 1, reference)
        terms = loss(inputs).terms
        objective = sum((behavior.exp() * term).sum() for term in terms.values())
        assert isinstance(objective, Tensor)
        logits.data -= 0.5 * gradient_of(objective, logits)
    return float(exact_kl(torch.log_softmax(logits.detach(), dim=-1), reference))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_raising_the_coefficient_lowers_the_kl(estimator: KLEstimator) -> None:
    measured = [descended_kl(coefficient, estimator) for coefficient in (0.0, 0.5, 2.0, 8.0)]
    assert measured == sorted(measured, reverse=True)
    assert measured[-1] < measured[0] / 10


def test_coefficient_zero_needs_no_reference() -> None:
    assert not ClippedPolicyGradient().needs_reference
    assert ClippedPolicyGradient(kl_coefficient=0.1).needs_reference
