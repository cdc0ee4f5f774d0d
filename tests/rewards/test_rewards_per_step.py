"""Each turn is judged by what was earned from it on, against the siblings' turns of the same index."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rewards.parts import NOTHING, attempt, credit, group, siblings

from posttrain.core.types import Group
from posttrain.rewards.group_mean import GroupMean
from posttrain.rewards.per_step import PerStep


def by_turn(step: Group, component: PerStep | None = None) -> list[list[float]]:
    """The one credit of each turn of each attempt."""
    arrays = (component or PerStep())([step], NOTHING)[0]
    found = []
    for array, tried in zip(arrays, step.trajectories, strict=True):
        values = [set(array[turn.start : turn.end].tolist()) for turn in tried.turns]
        assert all(len(value) == 1 for value in values), "a turn's tokens carry several credits"
        found.append([value.pop() for value in values])
    return found


def test_turn_is_compared_with_the_siblings_turn_of_the_same_index() -> None:
    pair = group(
        attempt(1.0, [2, 1], name="g/0", turn_rewards=[0.0]),
        attempt(0.0, [1, 3], name="g/1", turn_rewards=[0.5]),
    )
    # Returns: 1 and 1 in the first attempt, 0.5 and 0 in the second.
    assert by_turn(pair) == [[0.25, 0.5], [-0.25, -0.5]]


def test_what_was_earned_before_a_turn_is_not_its_credit() -> None:
    pair = group(
        attempt(0.0, [1, 1], name="g/0", turn_rewards=[1.0]),
        attempt(0.0, [1, 1], name="g/1", turn_rewards=[0.0]),
    )
    assert by_turn(pair) == [[0.5, 0.0], [-0.5, 0.0]]


def test_discount_counts_turns() -> None:
    pair = group(
        attempt(1.0, [1, 3, 2], name="g/0"),
        attempt(0.0, [1, 1, 1], name="g/1"),
    )
    assert by_turn(pair, PerStep(discount=0.5)) == [[0.125, 0.25, 0.5], [-0.125, -0.25, -0.5]]


def test_turn_that_no_sibling_has_carries_the_attempts_credit() -> None:
    pair = group(attempt(1.0, [1, 1], name="g/0"), attempt(0.0, [2], name="g/1"))
    assert by_turn(pair) == [[0.5, 0.5], [-0.5]]


def test_turns_reached_by_some_are_compared_among_those() -> None:
    three = group(
        attempt(1.0, [1, 1], name="g/0"),
        attempt(0.5, [1, 1], name="g/1"),
        attempt(0.0, [1], name="g/2"),
    )
    assert by_turn(three) == [[0.5, 0.25], [0.0, -0.25], [-0.5]]


@settings(max_examples=60, deadline=None)
@given(
    rewards=st.lists(st.one_of(st.none(), st.floats(-1, 1)), min_size=1, max_size=6),
    lengths=st.lists(st.integers(1, 4), min_size=6, max_size=6),
)
def test_with_one_turn_each_it_is_the_group_mean(rewards: list[float | None], lengths: list[int]) -> None:
    step = siblings(rewards, [[length] for length in lengths])
    assert credit(PerStep()([step], NOTHING)[0], step) == credit(GroupMean()([step], NOTHING)[0], step)


def test_attempt_without_recorded_turns_is_one_turn() -> None:
    pair = group(*(dataclasses.replace(t, turns=()) for t in siblings([1.0, 0.0]).trajectories))
    assert credit(PerStep()([pair], NOTHING)[0], pair) == [0.5, -0.5]


def test_attempt_without_a_sampled_token_is_still_compared_with() -> None:
    pair = group(attempt(0.0, [0], name="g/0"), attempt(1.0, [2], name="g/1"))
    arrays = PerStep()([pair], NOTHING)[0]
    assert arrays[1][pair.trajectories[1].sampled].tolist() == [0.5, 0.5]
    assert not arrays[0].any()


def test_clip_bounds_the_result() -> None:
    pair = siblings([1.0, 0.0])
    assert credit(PerStep(clip=0.25)([pair], NOTHING)[0], pair) == [0.25, -0.25]


@pytest.mark.parametrize("discount", [-0.1, 1.1, float("nan")])
def test_discount_outside_zero_to_one_is_refused(discount: float) -> None:
    with pytest.raises(ValueError, match="discount"):
        PerStep(discount=discount)


def test_credit_is_float32() -> None:
    assert PerStep()([siblings([1.0, 0.0])], NOTHING)[0][0].dtype == np.float32
