"""Clipping, capping and what is reported of them."""

from __future__ import annotations

import math

import pytest
import torch

from posttrain.losses.base import Loss, LossInputs, Terms
from posttrain.losses.clipped_policy_gradient import ClippedPolicyGradient
from posttrain.losses.supervised import Supervised


def inputs(ratios: list[float], advantages: list[float], *, entropy: bool = False) -> LossInputs:
    count = len(ratios)
    trainer = torch.full((count,), -2.0, dtype=torch.float64, requires_grad=True)
    behavior = trainer.detach() - torch.tensor(ratios, dtype=torch.float64).log()
    return LossInputs(
        trainer,
        behavior,
        torch.tensor(advantages, dtype=torch.float64),
        torch.zeros(count, dtype=torch.int64),
        1,
        entropy=torch.arange(count, dtype=torch.float64) if entropy else None,
    )


def slopes(loss: Loss, given: LossInputs) -> list[float]:
    """Derivative of each token's term by its own log-prob."""
    total = torch.stack([term.sum() for term in loss(given).terms.values()]).sum()
    (gradient,) = torch.autograd.grad(total, given.trainer_logprobs)
    return [float(value) for value in gradient]


LOSS = ClippedPolicyGradient(clip_low=0.2, clip_high=0.3, max_importance_weight=2.0)


@pytest.mark.parametrize(
    ("ratio", "advantage", "slope"),
    [
        (1.0, 3.0, -3.0),
        (1.29, 1.0, -1.29),
        (1.31, 1.0, 0.0),  # good and already far more likely: no push
        (0.5, 1.0, -0.5),  # good and less likely: pushed back up
        (0.81, -1.0, 0.81),
        (0.79, -1.0, 0.0),  # bad and already less likely: no push
        (1.9, -1.0, 1.9),  # bad and more likely: pushed down …
        (5.0, -1.0, 2.0),  # … with a weight of at most the cap
        (1e12, -1.0, 2.0),
        (1.0, 0.0, 0.0),
    ],
)
def test_slope_of_a_token(ratio: float, advantage: float, slope: float) -> None:
    assert slopes(LOSS, inputs([ratio], [advantage])) == pytest.approx([slope], rel=1e-9)


def test_value_is_the_clipped_surrogate() -> None:
    terms = LOSS(inputs([1.0, 1.5, 0.5, 5.0], [2.0, 1.0, -1.0, -1.0])).terms
    assert terms["policy_loss"].tolist() == pytest.approx([-2.0, -1.3, 0.8, 2.0])


def test_infinitely_unlikely_token_stays_finite() -> None:
    given = inputs([1.0], [-1.0])
    far = LossInputs(given.trainer_logprobs, torch.tensor([-1e6]).double(), given.advantages, given.segments, 1)
    out = LOSS(far)
    for values in (*out.terms.values(), *out.metrics.values(), *out.maxima.values()):
        assert torch.isfinite(values).all()


def test_metrics_say_what_was_clipped_capped_and_how_far_the_policies_are_apart() -> None:
    out = LOSS(inputs([1.0, 1.5, 5.0], [1.0, 1.0, -1.0], entropy=True))
    assert out.metrics["clipped_share"].tolist() == [0.0, 1.0, 0.0]
    assert out.metrics["capped_share"].tolist() == [0.0, 0.0, 1.0]
    assert out.metrics["importance_ratio"].tolist() == pytest.approx([1.0, 1.5, 5.0])
    assert out.metrics["mismatch"].tolist() == pytest.approx([0.0, math.log(1.5), math.log(5.0)])
    assert out.metrics["mismatch_kl"].tolist() == pytest.approx([r - 1 - math.log(r) for r in (1.0, 1.5, 5.0)])
    assert out.metrics["entropy"].tolist() == [0.0, 1.0, 2.0]
    assert "kl" not in out.metrics
    assert not any(values.requires_grad for values in (*out.metrics.values(), *out.maxima.values()))


def test_kl_is_reported_wherever_a_reference_is_given() -> None:
    given = inputs([1.0], [1.0])
    beside = LossInputs(
        given.trainer_logprobs, given.behavior_logprobs, given.advantages, given.segments, 1,
        reference_logprobs=given.trainer_logprobs.detach() - 1.0,
    )  # fmt: skip
    assert ClippedPolicyGradient(kl_estimator="k1")(beside).metrics["kl"].tolist() == [1.0]
    assert "kl_loss" not in ClippedPolicyGradient()(beside).terms
    weighted = ClippedPolicyGradient(kl_coefficient=0.5, kl_estimator="k1")(beside)
    assert weighted.terms["kl_loss"].tolist() == [0.5]


@pytest.mark.parametrize(
    "options",
    [{"clip_low": 0.0}, {"clip_low": 1.5}, {"clip_high": 0.0}, {"max_importance_weight": 0.5}, {"kl_coefficient": -1.0},
     {"kl_coefficient": math.nan}],
    ids=str,
)  # fmt: skip
def test_impossible_options_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        ClippedPolicyGradient(**options)  # type: ignore[arg-type]


def test_supervised_ignores_advantages_and_behaviour() -> None:
    given = inputs([3.0, 0.1], [5.0, -5.0], entropy=True)
    out: Terms = Supervised()(given)
    assert out.terms["negative_log_likelihood"].tolist() == [2.0, 2.0]
    assert slopes(Supervised(), given) == [-1.0, -1.0]
    assert not Supervised().needs_reference


def test_no_tokens_give_empty_terms() -> None:
    for loss in (LOSS, Supervised()):
        assert all(len(term) == 0 for term in loss(inputs([], [])).terms.values())


def test_built_in_losses_follow_the_seam() -> None:
    assert isinstance(LOSS, Loss)
    assert isinstance(Supervised(), Loss)
