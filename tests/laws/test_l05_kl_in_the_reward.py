"""L5 in the reward: why k1 with its return-to-go is offered there, and nothing else.

A reward is weighed by ∇ log policy of the tokens from which it follows, and is itself not differentiated. Summed over
all two-token sequences, k1 then gives the gradient of the KL between the sequences' distributions, later prefixes
included; k2 and k3, which are fine in the loss, give the gradient of something else.
"""

from __future__ import annotations

import pytest
import torch
from tests.laws.two_steps import TwoSteps, every_sequence, mean_under
from torch import Tensor

from posttrain.losses.kl import KLEstimator, kl_estimate, kl_term
from posttrain.losses.reinforce import Reinforce

POLICY, REFERENCE = TwoSteps.random(0), TwoSteps.random(1)
REFERENCE_LOGPROBS = REFERENCE.logprobs().detach()
COEFFICIENT = 0.3


def sequence_kl(policy: Tensor, reference: Tensor) -> Tensor:
    """Of `[V², 2]` log-probs."""
    return (policy.sum(dim=1).exp() * (policy - reference).sum(dim=1)).sum()


def token_kls_at_fixed_prefixes(policy: Tensor, reference: Tensor) -> Tensor:
    """The mean over drawn prefixes, themselves held fixed, of each token's KL."""
    of_tokens = policy.exp() * (policy - reference)
    first = of_tokens[:, 0].reshape(3, 3)[:, 0].sum()
    return first + (policy[:, 0].detach().exp() * of_tokens[:, 1]).sum()


def penalised(estimator: KLEstimator) -> Tensor:
    """`[V², 2]` rewards −β k of each token."""
    return -COEFFICIENT * kl_estimate(estimator, POLICY.logprobs().detach(), REFERENCE_LOGPROBS)


def to_go(rewards: Tensor) -> Tensor:
    return rewards.flip(1).cumsum(1).flip(1)


def policy_gradient(advantages: Tensor) -> Tensor:
    """Of the loss, so that descending it raises the rewards."""
    terms = Reinforce()(every_sequence(POLICY, POLICY, advantages)).terms["policy_loss"]
    return POLICY.gradient(mean_under(POLICY, terms))


def wanted() -> Tensor:
    return COEFFICIENT * POLICY.gradient(sequence_kl(POLICY.logprobs(), REFERENCE_LOGPROBS))


def test_k1_with_its_return_to_go_has_the_gradient_of_the_kl_of_sequences() -> None:
    assert wanted().abs().max() > 0.03
    assert torch.allclose(policy_gradient(to_go(penalised("k1"))), wanted(), rtol=0, atol=1e-12)


def test_so_has_the_sum_over_the_sequence_on_every_token() -> None:
    """What came before a token is a baseline for it: it changes the variance and not the mean."""
    whole = penalised("k1").sum(dim=1)
    assert torch.allclose(policy_gradient(whole), wanted(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("estimator", ["k2", "k3"])
def test_k2_and_k3_in_the_reward_have_another_gradient(estimator: KLEstimator) -> None:
    found = policy_gradient(to_go(penalised(estimator)))
    assert (found - wanted()).abs().max() > 0.1 * wanted().abs().max()


def test_k3_in_the_reward_takes_away_the_gradient_of_the_reverse_kl() -> None:
    """With k3 = k1 − 1 + reference / policy, the last part pulls away from the reference."""
    reverse = -(REFERENCE_LOGPROBS.exp() * POLICY.logprobs())[:, 0].reshape(3, 3)[:, 0].sum()
    first_only = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    with_k3, with_k1 = (policy_gradient(penalised(estimator) * first_only) for estimator in ("k3", "k1"))
    expected = with_k1 - COEFFICIENT * POLICY.gradient(reverse)
    assert torch.allclose(with_k3, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_in_the_loss_all_three_have_the_gradient_at_fixed_prefixes(estimator: KLEstimator) -> None:
    """A term of the loss sees its own token alone: drawn tokens' effect on later prefixes is left to the reward."""
    logprobs = POLICY.logprobs()
    terms = COEFFICIENT * kl_term(estimator, logprobs, REFERENCE_LOGPROBS, torch.ones_like(logprobs))
    found = POLICY.gradient(mean_under(POLICY, terms.reshape(-1)))
    expected = COEFFICIENT * POLICY.gradient(token_kls_at_fixed_prefixes(POLICY.logprobs(), REFERENCE_LOGPROBS))
    assert torch.allclose(found, expected, rtol=0, atol=1e-12)
    assert (found - wanted()).abs().max() > 0.001
