"""The weight is clipped, the token goes on pushing."""

from __future__ import annotations

import math

import pytest
from tests.losses.loss_parts import inputs, random_inputs, slopes

from posttrain.losses.cispo import CISPO
from posttrain.losses.reinforce import Reinforce


def test_every_token_pushes_with_its_clipped_weight() -> None:
    loss = CISPO(clip_low=0.2, clip_high=2.0)
    given = inputs([0.1, 0.9, 1.0, 2.9, 40.0, 40.0], [1.0, 1.0, -2.0, 1.0, 1.0, -1.0])
    assert slopes(loss, given) == pytest.approx([-0.8, -0.9, 2.0, -2.9, -3.0, 3.0])
    assert loss(given).metrics["clipped_share"].tolist() == [1.0, 0.0, 0.0, 0.0, 1.0, 1.0]


def test_value_is_clipped_weight_times_advantage_times_log_prob() -> None:
    term = CISPO(clip_high=2.0)(inputs([0.5, 40.0], [1.0, -1.0])).terms["policy_loss"]
    assert term.tolist() == pytest.approx([1.0, -6.0])


def test_without_a_lower_bound_it_is_reinforce_with_truncated_weights() -> None:
    given = random_inputs([5, 4], spread=2.0)
    other = Reinforce(max_importance_weight=3.0)
    assert slopes(CISPO(clip_high=2.0), given) == slopes(other, given)


@pytest.mark.parametrize("options", [{"clip_low": 0.0}, {"clip_low": 1.1}, {"clip_high": math.nan}], ids=str)
def test_impossible_bounds_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        CISPO(**options)
