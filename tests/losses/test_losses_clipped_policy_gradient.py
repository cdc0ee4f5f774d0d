"""Clipping, dual clipping, capping and what is reported of them."""

from __future__ import annotations

import math

import pytest
import torch
from tests.losses.loss_parts import inputs, replaced, slopes, tensor

from posttrain.losses.clipped_policy_gradient import ClippedPolicyGradient

LOSS = ClippedPolicyGradient(clip_low=0.2, clip_high=0.3, max_importance_weight=2.0)
DUAL = ClippedPolicyGradient(clip_low=0.2, clip_high=0.3, dual_clip=3.0, max_importance_weight=0.0)


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


@pytest.mark.parametrize(
    ("ratio", "advantage", "slope", "value"),
    [
        (2.9, -2.0, 5.8, 5.8),  # bad, more likely, but not beyond the bound
        (3.1, -2.0, 0.0, 6.0),  # beyond: no push, and the value stays
        (1e6, -2.0, 0.0, 6.0),
        (3.1, 2.0, 0.0, -2.6),  # a good token is stopped by the upper bound, not by the dual one
        (0.5, -2.0, 0.0, 1.6),
        (0.5, 2.0, -1.0, -1.0),
    ],
)
def test_dual_clip_stops_bad_tokens_that_became_far_too_likely(
    ratio: float, advantage: float, slope: float, value: float
) -> None:
    given = inputs([ratio], [advantage])
    assert slopes(DUAL, given) == pytest.approx([slope], rel=1e-9)
    assert DUAL(given).terms["policy_loss"].tolist() == pytest.approx([value])
    assert DUAL(given).metrics["clipped_share"].tolist() == [float(slope == 0.0)]


def test_value_is_the_clipped_surrogate() -> None:
    terms = LOSS(inputs([1.0, 1.5, 0.5, 5.0], [2.0, 1.0, -1.0, -1.0])).terms
    assert terms["policy_loss"].tolist() == pytest.approx([-2.0, -1.3, 0.8, 2.0])


def test_infinitely_unlikely_token_stays_finite() -> None:
    out = LOSS(replaced(inputs([1.0], [-1.0]), behavior_logprobs=tensor([-1e6])))
    for values in (*out.terms.values(), *out.metrics.values(), *out.maxima.values()):
        assert torch.isfinite(values).all()


def test_metrics_say_what_was_clipped_and_capped() -> None:
    out = LOSS(inputs([1.0, 1.5, 5.0], [1.0, 1.0, -1.0]))
    assert out.metrics["clipped_share"].tolist() == [0.0, 1.0, 0.0]
    assert out.metrics["capped_share"].tolist() == [0.0, 0.0, 1.0]
    assert "capped_share" not in DUAL(inputs([1.0], [1.0])).metrics


@pytest.mark.parametrize(
    "options",
    [{"clip_low": 0.0}, {"clip_low": 1.5}, {"clip_high": 0.0}, {"max_importance_weight": 0.5}, {"dual_clip": 1.0},
     {"dual_clip": math.nan}, {"clip_high": math.nan}],
    ids=str,
)  # fmt: skip
def test_impossible_options_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        ClippedPolicyGradient(**options)
