"""Centring and scaling, before anything is known of groups or tokens."""

from __future__ import annotations

import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.rewards.statistics import STD_OFFSET, check_clip, deviations, scaled

VALUES = st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=40)


@settings(max_examples=60, deadline=None)
@given(values=VALUES)
def test_deviations_are_from_the_mean(values: list[float]) -> None:
    assert deviations(np.asarray(values)) == pytest.approx([v - statistics.fmean(values) for v in values], abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(value=st.floats(-1e6, 1e6), size=st.integers(1, 50))
def test_equal_values_deviate_by_exactly_zero(value: float, size: int) -> None:
    assert not scaled(deviations(np.full(size, value))).any()


@settings(max_examples=60, deadline=None)
@given(values=VALUES)
def test_spread_is_the_samples_with_one_less_below(values: list[float]) -> None:
    centred = np.asarray(values) - statistics.fmean(values)
    expected = centred / (statistics.stdev(values) + STD_OFFSET)
    assert scaled(centred) == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_no_values_and_one_value_are_left_as_they_are() -> None:
    assert len(deviations(np.zeros(0))) == len(scaled(np.zeros(0))) == 0
    assert scaled(np.asarray([0.5])).tolist() == [0.5]


@pytest.mark.parametrize("clip", [0.0, -1.0, float("nan")])
def test_clip_that_leaves_nothing_is_refused(clip: float) -> None:
    with pytest.raises(ValueError, match="clip must be above 0"):
        check_clip(clip)
