"""What of group advantages is not a law (those are L7, L9 and L10 in tests/laws)."""

from __future__ import annotations

import numpy as np
import pytest

from posttrain.core.errors import NonFiniteError
from posttrain.core.protocols import Advantage
from posttrain.core.types import Group, Reward, Split, StopReason, Task, Trajectory, Verdict
from posttrain.rewards.group_mean import GroupMean


def group(rewards: list[float], lengths: list[int]) -> Group:
    """Ragged: each attempt is all sampled, of its own length."""
    task = Task("toy", (), {}, Split.TRAIN, seed=0, index=0, level=1)
    attempts = [
        Trajectory(
            f"g/{i}", task, "g", i, np.zeros(length, np.int32), np.ones(length, np.bool_), np.zeros(length, np.float32),
            np.zeros(length, np.int32), (), "", StopReason.STOP, verdict=Verdict.correct(), reward=Reward(reward),
        )
        for i, (reward, length) in enumerate(zip(rewards, lengths, strict=True))
    ]  # fmt: skip
    return Group("g", task, tuple(attempts))


def test_ragged_group_weighs_attempts_equally_whatever_their_length() -> None:
    (arrays,) = GroupMean()([group([1.0, 0.0], [2, 100])])
    assert [len(array) for array in arrays] == [2, 100]
    assert [float(array[0]) for array in arrays] == [0.5, -0.5]


def test_groups_do_not_touch_one_another() -> None:
    first, second = group([1.0, 0.0], [1, 1]), group([5.0, 3.0], [1, 1])
    both = GroupMean()([first, second])
    assert [float(a[0]) for a in both[0]] == [0.5, -0.5]
    assert [float(a[0]) for a in both[1]] == [1.0, -1.0]


def test_scaling_divides_by_the_population_standard_deviation() -> None:
    (arrays,) = GroupMean(scale_by_std=True)([group([1.0, 0.0, 0.0, 0.0], [1] * 4)])
    assert [float(a[0]) for a in arrays] == pytest.approx([3**0.5, *[-(3**-0.5)] * 3])


def test_clip_bounds_the_result() -> None:
    (arrays,) = GroupMean(clip=0.3)([group([1.0, 0.0], [1, 1])])
    assert [float(a[0]) for a in arrays] == pytest.approx([0.3, -0.3])


@pytest.mark.parametrize("reward", [float("nan"), float("inf")])
def test_reward_that_is_not_finite_is_refused_by_name(reward: float) -> None:
    with pytest.raises(NonFiniteError, match="the reward of trajectory g/1 is"):
        GroupMean()([group([1.0, reward], [1, 1])])


def test_clip_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="clip must be above 0"):
        GroupMean(clip=0.0)


def test_it_follows_the_seam() -> None:
    component: Advantage = GroupMean()
    assert component([]) == []
