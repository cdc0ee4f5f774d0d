"""What of the group's mean is not a law (those are L7 to L10 in tests/laws)."""

from __future__ import annotations

import pytest
from tests.rewards.parts import NOTHING, attempt, credit, group, siblings

from posttrain.core.errors import NonFiniteError
from posttrain.core.protocols import Advantage
from posttrain.core.types import Annotations
from posttrain.rewards.group_mean import GroupMean


def test_ragged_group_weighs_attempts_equally_whatever_their_length() -> None:
    ragged = siblings([1.0, 0.0], [[2], [100]])
    (arrays,) = GroupMean()([ragged], NOTHING)
    assert [len(array) for array in arrays] == [4, 102]
    assert credit(arrays, ragged) == [0.5, -0.5]


def test_groups_do_not_touch_one_another() -> None:
    first, second = siblings([1.0, 0.0], name="a"), siblings([5.0, 3.0], name="b", index=1)
    both = GroupMean()([first, second], NOTHING)
    assert credit(both[0], first) == [0.5, -0.5]
    assert credit(both[1], second) == [1.0, -1.0]


def test_clip_bounds_the_result() -> None:
    pair = siblings([1.0, 0.0])
    assert credit(GroupMean(clip=0.25)([pair], NOTHING)[0], pair) == [0.25, -0.25]


def test_kl_in_the_reward_lowers_the_attempts_total() -> None:
    pair = siblings([1.0, 1.0], [[1], [2]])  # sampled at log-prob −1
    notes = Annotations(
        reference_logprobs={
            "g/0": pair.trajectories[0].behavior_logprobs,
            "g/1": pair.trajectories[1].tokens * 0.0 - 2,
        },
        kl_in_reward=0.5,
    )
    assert credit(GroupMean()([pair], notes)[0], pair) == [0.5, -0.5]  # two tokens, a nat each, at half a point


def test_rewards_of_single_turns_are_in_the_total() -> None:
    pair = group(
        attempt(0.0, [1, 1], name="g/0", turn_rewards=[1.0]),
        attempt(0.0, [1, 1], name="g/1"),
    )
    assert credit(GroupMean()([pair], NOTHING)[0], pair) == [0.5, -0.5]


@pytest.mark.parametrize("reward", [float("nan"), float("inf")])
def test_reward_that_is_not_finite_is_refused_by_name(reward: float) -> None:
    with pytest.raises(NonFiniteError, match="the reward of trajectory g/1 is"):
        GroupMean()([siblings([1.0, reward])], NOTHING)


def test_clip_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="clip must be above 0"):
        GroupMean(clip=0.0)


def test_it_follows_the_seam() -> None:
    component: Advantage = GroupMean()
    assert component([], NOTHING) == []
    assert not component.needs_values
