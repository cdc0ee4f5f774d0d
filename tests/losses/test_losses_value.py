"""The critic's error, when it is clipped and what is reported of it."""

from __future__ import annotations

import math

import pytest
import torch
from tests.losses.loss_parts import gradients, inputs, random_inputs, tensor

from posttrain.losses.base import LossInputs
from posttrain.losses.value import Value


def judged(values: list[float], old: list[float], returns: list[float]) -> LossInputs:
    ones = [1.0] * len(values)
    return inputs(ones, ones, values=tensor(values).requires_grad_(), old_values=tensor(old), returns=tensor(returns))


@pytest.mark.parametrize(
    ("value", "old", "target", "term", "slope"),
    [
        (1.0, 1.0, 3.0, 4.0, -2.0),  # not moved: the plain error
        (1.1, 1.0, 3.0, 3.61, -1.9),  # moved, within the clip
        (1.5, 1.0, 3.0, 1.8**2, 0.0),  # moved too far towards the return: pushed no more
        (0.5, 1.0, 3.0, 2.5**2, -2.5),  # moved too far away from it: pushed back
        (0.5, 1.0, -3.0, 3.8**2, 0.0),
        (5.0, 1.0, 3.0, 4.0, 2.0),  # past the return, further than the clipped value is before it: pushed back
        (3.5, 1.0, 3.0, 1.8**2, 0.0),
    ],
)
def test_clipped_error_of_a_value(value: float, old: float, target: float, term: float, slope: float) -> None:
    given = judged([value], [old], [target])
    loss = Value(coefficient=1.0, clip=0.2)
    assert loss(given).terms["value_loss"].tolist() == pytest.approx([0.5 * term])
    assert gradients(loss, given)["values"].tolist() == pytest.approx([slope])


def test_without_a_clip_it_is_half_the_squared_error_times_the_coefficient() -> None:
    given = judged([1.5, -9.0], [1.0, 1.0], [3.0, 1.0])
    loss = Value(coefficient=0.5, clip=0.0)
    assert loss(given).terms["value_loss"].tolist() == pytest.approx([0.25 * 2.25, 0.25 * 100.0])
    assert gradients(loss, given)["values"].tolist() == pytest.approx([-0.75, -5.0])
    assert "value_clipped_share" not in loss(given).metrics


def test_metrics_are_the_plain_squared_error_and_the_share_of_clipped_values() -> None:
    metrics = Value()(judged([1.0, 1.5], [1.0, 1.0], [3.0, 3.0])).metrics
    assert metrics["value_error"].tolist() == pytest.approx([4.0, 2.25])
    assert metrics["value_clipped_share"].tolist() == [0.0, 1.0]
    assert not any(values.requires_grad for values in metrics.values())


def test_policy_gets_no_gradient_from_it() -> None:
    found = gradients(Value(), random_inputs([3, 2]))
    assert not found["trainer_logprobs"].any()
    assert not found["entropy"].any()


def test_descending_it_finds_the_mean_return() -> None:
    value = tensor([0.0]).requires_grad_()
    returns = tensor([1.0, 2.0, 6.0])
    for _ in range(200):
        old = value.detach().expand(3)
        given = inputs([1.0] * 3, [1.0] * 3, values=value.expand(3), old_values=old, returns=returns)
        (slope,) = torch.autograd.grad(Value()(given).terms["value_loss"].sum(), value)
        value.data -= 0.1 * slope
    assert float(value.detach()) == pytest.approx(3.0, abs=1e-3)


@pytest.mark.parametrize("options", [{"coefficient": -1.0}, {"coefficient": math.nan}, {"clip": -0.1}], ids=str)
def test_impossible_options_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        Value(**options)
