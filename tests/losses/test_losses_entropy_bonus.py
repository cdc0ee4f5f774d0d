"""A bonus pushes towards more entropy, by as much as its coefficient says."""

from __future__ import annotations

import math

import pytest
import torch
from tests.losses.loss_parts import VOCABULARY, gradients, inputs, random_inputs, tensor

from posttrain.losses.entropy_bonus import EntropyBonus


def test_term_is_minus_the_coefficient_times_the_entropy() -> None:
    given = inputs([1.0, 3.0], [5.0, -5.0], entropy=tensor([0.5, 2.0]))
    assert EntropyBonus(0.1)(given).terms["entropy_loss"].tolist() == pytest.approx([-0.05, -0.2])


def test_gradient_goes_through_the_entropy_alone() -> None:
    found = gradients(EntropyBonus(0.1), random_inputs([2, 1]))
    assert found["entropy"].tolist() == pytest.approx([-0.1] * 3)
    assert not found["trainer_logprobs"].any()


def test_descending_the_term_makes_a_distribution_uniform() -> None:
    logits = tensor([2.0, 0.0, -1.0, 0.5, 0.0]).requires_grad_()
    for _ in range(300):
        table = torch.log_softmax(logits, dim=-1)
        entropy = -(table.exp() * table).sum()[None]
        given = inputs([1.0], [1.0], entropy=entropy)
        (slope,) = torch.autograd.grad(EntropyBonus(1.0)(given).terms["entropy_loss"].sum(), logits)
        logits.data -= 0.5 * slope
    assert torch.softmax(logits, dim=-1).tolist() == pytest.approx([1 / VOCABULARY] * VOCABULARY, abs=1e-3)


@pytest.mark.parametrize("coefficient", [-0.1, math.nan])
def test_impossible_coefficients_are_refused(coefficient: float) -> None:
    with pytest.raises(ValueError, match="coefficient must be at least 0"):
        EntropyBonus(coefficient)
