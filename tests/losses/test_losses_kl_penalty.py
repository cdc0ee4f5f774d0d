"""The penalty's coefficient, weights and what it reports; its gradients are law L5."""

from __future__ import annotations

import math

import pytest
import torch
from tests.losses.loss_parts import inputs, slopes, tensor

from posttrain.losses.base import LossInputs
from posttrain.losses.kl_penalty import KLPenalty


def beside(ratios: list[float], differences: list[float]) -> LossInputs:
    """Tokens at which log policy − log reference is as given."""
    reference = -2.0 - tensor(differences)
    return inputs(ratios, [7.0] * len(ratios), reference_logprobs=reference)


@pytest.mark.parametrize(("estimator", "value"), [("k1", 1.5), ("k2", 1.5**2 / 2), ("k3", math.exp(-1.5) - 1 + 1.5)])
def test_term_is_the_coefficient_times_the_weighted_estimate(estimator: str, value: float) -> None:
    loss = KLPenalty(0.5, estimator=estimator)  # type: ignore[arg-type]
    given = beside([1.0, 0.5, 9.0], [1.5, 1.5, 1.5])
    assert loss(given).terms["kl_loss"].tolist() == pytest.approx([0.5 * value, 0.25 * value, 1.0 * value])
    assert loss(given).metrics["kl"].tolist() == pytest.approx([value] * 3)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_coefficient_scales_the_gradient(estimator: str) -> None:
    given = beside([1.0, 0.5], [0.3, -0.7])
    single, double = (slopes(KLPenalty(c, estimator=estimator), given) for c in (1.0, 2.0))  # type: ignore[arg-type]
    assert double == pytest.approx([2 * slope for slope in single])
    assert max(map(abs, single)) > 0.1


def test_what_is_reported_has_no_gradient() -> None:
    assert not KLPenalty()(beside([1.0], [1.0])).metrics["kl"].requires_grad


def test_far_apart_policies_give_finite_penalties() -> None:
    for estimator in ("k1", "k2", "k3"):
        term = KLPenalty(estimator=estimator)(beside([1e20, 1e-20], [50.0, -50.0])).terms["kl_loss"]
        assert torch.isfinite(term).all()


@pytest.mark.parametrize(
    "options", [{"coefficient": -1.0}, {"coefficient": math.nan}, {"max_importance_weight": 0.5}], ids=str
)
def test_impossible_options_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        KLPenalty(**options)  # type: ignore[arg-type]
