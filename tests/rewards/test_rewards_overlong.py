"""The length penalty: where it begins, where it ends, and that it is a visible part of the reward."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rewards.parts import attempt, group, task

from posttrain.core.errors import ConfigError
from posttrain.core.types import Limits, Reward, StopReason, Trajectory
from posttrain.rewards.overlong import WEIGHT, overlong, penalise_overlong

LIMIT = 20


def tried(*turns: int, reward: float | None = 1.0, **fields: Any) -> Trajectory:
    return attempt(reward, turns, at=task(limits=Limits(max_new_tokens=LIMIT)), **fields)


def penalised(trajectory: Trajectory, buffer: int = 4) -> Reward:
    (result,) = penalise_overlong([group(trajectory)], buffer)
    reward = result.trajectories[0].reward
    assert reward is not None
    return reward


@pytest.mark.parametrize(
    ("length", "expected"), [(1, 0.0), (16, 0.0), (17, -0.25), (18, -0.5), (19, -0.75), (20, -1.0)]
)
def test_penalty_grows_linearly_over_the_buffer(length: int, expected: float) -> None:
    assert overlong(tried(length), 4) == expected


@pytest.mark.parametrize("stop", [StopReason.MAX_NEW_TOKENS, StopReason.MAX_CONTEXT])
def test_attempt_that_was_cut_off_has_all_of_it(stop: StopReason) -> None:
    assert overlong(tried(3, stop=stop), 4) == -1.0


def test_longest_turn_counts_since_the_limit_is_a_turns() -> None:
    assert overlong(tried(15, 18, 15), 4) == -0.5


def test_buffer_of_zero_is_a_fifth_of_the_limit() -> None:
    assert [overlong(tried(length), 0) for length in (16, 18)] == [0.0, -0.5]


def test_total_is_recomputed_from_parts_and_weights() -> None:
    reward = penalised(tried(18))
    assert reward.parts == {"outcome": 1.0, "overlong": -0.5}
    assert reward.weights == {"outcome": 1.0, "overlong": WEIGHT}
    assert reward.total == 1.0 - 0.5 * WEIGHT


@settings(max_examples=40, deadline=None)
@given(outcome=st.floats(0, 1), length=st.integers(1, LIMIT), buffer=st.integers(0, LIMIT - 1))
def test_logged_reward_is_the_trained_reward(outcome: float, length: int, buffer: int) -> None:
    reward = penalised(tried(length, reward=outcome), buffer)
    assert reward.total == pytest.approx(math.fsum(reward.parts[n] * reward.weights[n] for n in reward.parts))
    assert outcome - WEIGHT <= reward.total <= outcome


def test_short_attempt_keeps_its_total_and_shows_the_part() -> None:
    reward = penalised(tried(3))
    assert reward.total == 1.0
    assert reward.parts["overlong"] == 0.0


def test_closed_gate_still_makes_the_total_zero() -> None:
    closed = dataclasses.replace(tried(20), reward=Reward(0.0, {"outcome": 1.0}, {"outcome": 1.0}, {"honest": False}))
    reward = penalised(closed)
    assert reward.total == 0.0
    assert reward.parts["overlong"] == -1.0


def test_attempt_without_a_verdict_is_left_as_it_is() -> None:
    unscored = tried(20, reward=None)
    (result,) = penalise_overlong([group(unscored)], 4)
    assert result.trajectories[0] is unscored


def test_buffer_that_leaves_no_room_is_refused() -> None:
    with pytest.raises(ConfigError, match="overlong_buffer_tokens is 20 and the limit in domain toy is 20"):
        penalise_overlong([group(tried(3))], LIMIT)
