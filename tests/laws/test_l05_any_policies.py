"""L5 for any policies: the penalty has the gradient of KL(policy ‖ reference), whichever estimator, coefficient and
behaviour, and its estimates have the KL as their mean where they claim it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from posttrain.losses.base import LossInputs
from posttrain.losses.kl import KLEstimator, kl_estimate
from posttrain.losses.kl_penalty import KLPenalty

NO_CAP = 1e9
LOGITS = st.integers(2, 6).flatmap(
    lambda size: st.tuples(*[st.lists(st.floats(-3, 3), min_size=size, max_size=size)] * 3)
)
"""Of policy, reference and behaviour."""


def log_softmax(logits: list[float]) -> Tensor:
    return torch.log_softmax(torch.tensor(logits, dtype=torch.float64), dim=-1)


def exact_kl(policy: Tensor, reference: Tensor) -> Tensor:
    return (policy.exp() * (policy - reference)).sum()


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
@settings(max_examples=60, deadline=None)
@given(logits=LOGITS, coefficient=st.floats(0.0, 3.0), on_policy=st.booleans())
def test_mean_gradient_of_the_penalty_is_the_coefficient_times_that_of_the_kl(
    estimator: KLEstimator, logits: tuple[list[float], ...], coefficient: float, on_policy: bool
) -> None:
    """The mean is over all tokens that the behaviour could draw."""
    reference, behavior = log_softmax(logits[1]), log_softmax(logits[0 if on_policy else 2])
    leaf = torch.tensor(logits[0], dtype=torch.float64, requires_grad=True)

    (wanted,) = torch.autograd.grad(exact_kl(torch.log_softmax(leaf, dim=-1), reference), leaf)
    policy = torch.log_softmax(leaf, dim=-1)
    segments = torch.zeros(len(leaf), dtype=torch.int64)
    inputs = LossInputs(policy, behavior, torch.zeros_like(reference), segments, 1, reference)
    terms = KLPenalty(coefficient, estimator, NO_CAP)(inputs).terms["kl_loss"]
    (found,) = torch.autograd.grad((behavior.exp() * terms).sum(), leaf)

    assert torch.allclose(found, coefficient * wanted, rtol=0, atol=1e-10)
    if estimator != "k2":
        mean = float((behavior.exp() * terms.detach()).sum())
        assert mean == pytest.approx(coefficient * float(exact_kl(policy.detach(), reference)), abs=1e-10)


@settings(max_examples=60, deadline=None)
@given(logits=LOGITS)
def test_k3_is_never_negative_and_all_three_vanish_where_the_policies_agree(logits: tuple[list[float], ...]) -> None:
    policy, reference = log_softmax(logits[0]), log_softmax(logits[1])
    assert float(kl_estimate("k3", policy, reference).min()) >= 0.0
    estimators: tuple[KLEstimator, ...] = ("k1", "k2", "k3")
    for estimator in estimators:
        assert not kl_estimate(estimator, policy, policy).any()
