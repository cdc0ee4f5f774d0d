"""L5 in the loss: each KL option has the gradient of the KL it names, by exact enumeration of a toy vocabulary."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from posttrain.losses.base import Loss, LossInputs
from posttrain.losses.clipped_policy_gradient import ClippedPolicyGradient
from posttrain.losses.kl import KLEstimator, kl_estimate, kl_term
from posttrain.losses.kl_penalty import KLPenalty

VOCABULARY = 7
ESTIMATORS: tuple[KLEstimator, ...] = ("k1", "k2", "k3")
NO_CAP = 1e9
SEGMENTS = torch.zeros(VOCABULARY, dtype=torch.int64)


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


def expected_penalty(loss: KLPenalty, policy: Tensor, reference: Tensor, behavior: Tensor) -> Tensor:
    """The same of the whole loss."""
    advantages = distribution(9)
    terms = loss(LossInputs(policy, behavior, advantages, SEGMENTS, 1, reference)).terms
    return (behavior.exp() * terms["kl_loss"]).sum()


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("on_policy", [True, False], ids=["on_policy", "off_policy"])
def test_gradient_of_the_loss_is_the_gradient_of_the_kl(
    estimator: KLEstimator, temperature: float, on_policy: bool
) -> None:
    """At the temperature sampled with: both policies are those of the tokens that were drawn."""
    logits = distribution(0).requires_grad_()
    reference = torch.log_softmax(distribution(1) / temperature, dim=-1)
    policy = torch.log_softmax(logits / temperature, dim=-1)
    behavior = policy.detach() if on_policy else distribution(2)
    wanted = 0.3 * gradient_of(exact_kl(policy, reference), logits)
    policy = torch.log_softmax(logits / temperature, dim=-1)
    ours = gradient_of(expected_penalty(KLPenalty(0.3, estimator, NO_CAP), policy, reference, behavior), logits)
    assert wanted.abs().max() > 0.01
    assert torch.allclose(ours, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_mean_of_the_estimate_is_the_kl(estimator: KLEstimator) -> None:
    policy, reference, behavior = distribution(0), distribution(1), distribution(2)
    kl = exact_kl(policy, reference)
    assert torch.allclose((policy.exp() * kl_estimate(estimator, policy, reference)).sum(), kl)
    assert torch.allclose(expected_term(estimator, policy, reference, behavior), kl)


def test_mean_of_k2_is_half_the_mean_square() -> None:
    policy, reference = distribution(0), distribution(1)
    mean = (policy.exp() * kl_estimate("k2", policy, reference)).sum()
    assert torch.allclose(mean, (policy.exp() * (policy - reference).square()).sum() / 2)


def test_k2_is_close_to_the_kl_for_close_policies() -> None:
    policy = distribution(0)
    reference = torch.log_softmax(policy + 0.01 * distribution(1), dim=-1)
    estimate = (policy.exp() * kl_estimate("k2", policy, reference)).sum()
    assert torch.allclose(estimate, exact_kl(policy, reference), rtol=0.05)


def test_k3_is_never_negative() -> None:
    assert kl_estimate("k3", distribution(0), distribution(1)).min() >= 0.0


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_differentiating_the_estimate_alone_would_give_another_gradient(estimator: KLEstimator) -> None:
    """Why `kl_term` adds the score-function part: k1 would give 0, k3 the gradient of KL(reference ‖ policy)."""
    logits, reference = distribution(0).requires_grad_(), distribution(1)
    policy = torch.log_softmax(logits, dim=-1)
    naive = (policy.detach().exp() * kl_estimate(estimator, policy, reference)).sum()
    reverse = exact_kl(reference, torch.log_softmax(logits, dim=-1))
    found, other = gradient_of(naive, logits), gradient_of(reverse, logits)
    assert torch.allclose(found, torch.zeros_like(found) if estimator == "k1" else other, rtol=0, atol=1e-12)
    wanted = gradient_of(exact_kl(torch.log_softmax(logits, dim=-1), reference), logits)
    assert (found - wanted).abs().max() > 0.05


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_cap_of_the_weights_bounds_what_a_token_can_do_and_leaves_close_policies_alone(estimator: KLEstimator) -> None:
    policy, reference = distribution(0).requires_grad_(), distribution(1)
    near = torch.log_softmax(policy.detach() + 0.1 * distribution(2), dim=-1)
    for behavior, alike in ((near, True), (policy.detach() - 3.0, False)):
        found = [
            gradient_of(expected_penalty(KLPenalty(1.0, estimator, cap), policy, reference, behavior), policy)
            for cap in (2.0, NO_CAP)
        ]
        assert torch.equal(*found) == alike
        assert found[0].abs().max() <= found[1].abs().max()


def descended_kl(coefficient: float, estimator: KLEstimator) -> float:
    """KL to the reference after descending reward + coefficient · KL, over all tokens as if each were drawn."""
    reference = distribution(1)
    rewards = distribution(3)
    losses: list[Loss] = [ClippedPolicyGradient(), KLPenalty(coefficient, estimator)]
    logits = reference.clone().requires_grad_()
    for _ in range(200):
        policy = torch.log_softmax(logits, dim=-1)
        behavior = policy.detach()
        inputs = LossInputs(policy, behavior, rewards, SEGMENTS, 1, reference)
        terms = [term for loss in losses for term in loss(inputs).terms.values()]
        objective = torch.stack([(behavior.exp() * term).sum() for term in terms]).sum()
        logits.data -= 0.5 * gradient_of(objective, logits)
    return float(exact_kl(torch.log_softmax(logits.detach(), dim=-1), reference))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_raising_the_coefficient_lowers_the_kl(estimator: KLEstimator) -> None:
    measured = [descended_kl(coefficient, estimator) for coefficient in (0.0, 0.5, 2.0, 8.0)]
    assert measured == sorted(measured, reverse=True)
    assert measured[-1] < measured[0] / 10
