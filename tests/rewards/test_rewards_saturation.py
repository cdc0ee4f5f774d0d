"""When a group has nothing left to learn of a part."""

from __future__ import annotations

import pytest

from posttrain.rewards.saturation import saturated


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0] * 8, True),
        ([0.97, 1.0, 1.0, 0.95], True),
        ([1.0] * 7 + [0.0], False),
        ([0.5] * 8, False),
        ([0.0] * 8, False),
        ([1.0] * 99 + [0.0], True),
        ([1.0] * 30 + [0.0], False),
        ([1.0], False),
        ([], False),
    ],
)
def test_high_mean_and_small_spread_are_both_needed(values: list[float], expected: bool) -> None:
    assert saturated(values) is expected
