"""L7: a constant group is exactly zero; L10 and L9 beside it: credit on every sampled token, groups of one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from posttrain.core.types import FloatArray, Group, Reward, Split, StopReason, Task, Trajectory, Verdict
from posttrain.rewards.group_mean import GroupMean

FINITE = st.floats(-1e6, 1e6)


def group_of(rewards: list[float]) -> Group:
    task = Task("toy", (), {}, Split.TRAIN, seed=0, index=0, level=1)
    sampled = np.asarray([False, True, True, False, True])  # two turns
    zeros = np.zeros(5, np.float32)
    attempts = [
        Trajectory(
            f"g/{i}", task, "g", i, np.arange(5, dtype=np.int32), sampled, zeros, zeros.astype(np.int32), (), "",
            StopReason.STOP, verdict=Verdict.correct(), reward=Reward(reward),
        )
        for i, reward in enumerate(rewards)
    ]  # fmt: skip
    return Group("g", task, tuple(attempts))


def advantages(rewards: list[float], component: GroupMean) -> list[FloatArray]:
    return component([group_of(rewards)])[0]


@settings(max_examples=60, deadline=None)
@given(value=FINITE, size=st.integers(1, 33), scale=st.booleans())
@example(0.1, 3, True)
@example(0.2, 6, True)
@example(0.7, 7, True)
@example(1 / 3, 31, False)
def test_constant_group_is_exactly_zero(value: float, size: int, scale: bool) -> None:
    for array in advantages([value] * size, GroupMean(scale_by_std=scale)):
        assert not array.any()


@settings(max_examples=60, deadline=None)
@given(rewards=st.lists(FINITE, min_size=1, max_size=16), scale=st.booleans(), clip=st.floats(0.1, 100.0))
def test_advantages_are_finite_and_within_the_stated_clip(rewards: list[float], scale: bool, clip: float) -> None:
    for array in advantages(rewards, GroupMean(scale_by_std=scale, clip=clip)):
        assert np.isfinite(array).all()
        assert np.abs(array).max() <= np.float32(clip)


@settings(max_examples=60, deadline=None)
@given(rewards=st.lists(st.floats(0, 1), min_size=2, max_size=16), shift=st.floats(-1e3, 1e3))
def test_a_constant_added_to_every_reward_changes_nothing(rewards: list[float], shift: float) -> None:
    plain = np.asarray(advantages(rewards, GroupMean()))
    shifted = np.asarray(advantages([reward + shift for reward in rewards], GroupMean()))
    assert np.allclose(plain, shifted, atol=1e-6)


def test_almost_constant_rewards_are_not_blown_up_by_their_tiny_spread() -> None:
    arrays = advantages([0.5, 0.5 + 1e-9], GroupMean(scale_by_std=True))
    assert np.abs(arrays).max() < 1e-4


@pytest.mark.parametrize("rewards", [[1.0, 0.0, 0.0, 0.0], [0.25, 0.75]])
def test_group_sums_to_zero_and_is_centred_on_the_mean(rewards: list[float]) -> None:
    credit = [float(array[1]) for array in advantages(rewards, GroupMean())]
    assert credit == pytest.approx([reward - sum(rewards) / len(rewards) for reward in rewards])


def test_every_sampled_token_of_every_turn_carries_the_credit() -> None:
    for array in advantages([1.0, 0.0], GroupMean()):
        assert array.dtype == np.float32
        assert set(array[[1, 2, 4]].tolist()) in ({0.5}, {-0.5})
        assert not array[[0, 3]].any()
