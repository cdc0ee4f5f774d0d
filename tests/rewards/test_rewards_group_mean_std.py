"""GRPO's advantage: the group's mean and its sample standard deviation."""

from __future__ import annotations

import numpy as np
import pytest
from tests.rewards.parts import NOTHING, credit, siblings

from posttrain.rewards.group_mean_std import GroupMeanStd


def test_it_divides_by_the_sample_standard_deviation_plus_the_offset() -> None:
    four = siblings([1.0, 0.0, 0.0, 0.0])  # mean 1/4, sample variance 1/4
    expected = [0.75 / 0.5001, *[-0.25 / 0.5001] * 3]
    assert credit(GroupMeanStd()([four], NOTHING)[0], four) == pytest.approx(expected, rel=1e-6)


def test_every_group_has_the_same_spread_whatever_its_rewards() -> None:
    narrow, wide = siblings([0.0, 1.0]), siblings([0.0, 90.0])
    assert credit(GroupMeanStd()([narrow], NOTHING)[0], narrow) == pytest.approx(
        credit(GroupMeanStd()([wide], NOTHING)[0], wide), rel=1e-3
    )


def test_almost_constant_rewards_are_not_blown_up_by_their_tiny_spread() -> None:
    arrays = GroupMeanStd()([siblings([0.5, 0.5 + 1e-9])], NOTHING)
    assert np.abs(np.concatenate(arrays[0])).max() < 1e-4


def test_clip_bounds_the_result() -> None:
    pair = siblings([1.0, 0.0])
    assert credit(GroupMeanStd(clip=0.5)([pair], NOTHING)[0], pair) == [0.5, -0.5]
