"""L8: siblings carry the same task instance, by content hash; membership is an id, never a position."""

from __future__ import annotations

import dataclasses
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rewards.parts import ADVANTAGES, BY_GROUP, annotated, component, steps

from posttrain.core.types import Group, Message, Role, Split, StopReason, Task, Trajectory


def task(text: str, *, seed: int = 0, index: int = 0) -> Task:
    return Task("arithmetic", (Message(Role.USER, text),), {"answer": "5"}, Split.TRAIN, seed, index, level=1)


def attempt(at: Task, sibling: int, length: int = 2, group_id: str = "g") -> Trajectory:
    return Trajectory(
        trajectory_id=f"{group_id}/{sibling}",
        task=at,
        group_id=group_id,
        sibling=sibling,
        tokens=np.zeros(length, dtype=np.int32),
        sampled=np.ones(length, dtype=np.bool_),
        behavior_logprobs=np.zeros(length, dtype=np.float32),
        versions=np.zeros(length, dtype=np.int32),
        turns=(),
        reply="5",
        stop=StopReason.STOP,
    )


def test_attempt_at_another_task_is_refused_by_content() -> None:
    ours, other = task("2 + 3"), task("2 + 4")
    with pytest.raises(ValueError, match="trajectory g/1 is not of group g"):
        Group("g", ours, (attempt(ours, 0), attempt(other, 1)))


def test_attempt_of_another_group_at_the_same_task_is_refused() -> None:
    ours = task("2 + 3")
    with pytest.raises(ValueError, match="trajectory h/0 is not of group g"):
        Group("g", ours, (attempt(ours, 0), attempt(ours, 0, group_id="h")))


def test_equal_content_is_one_task_wherever_the_instance_was_made() -> None:
    ours, again = task("2 + 3"), task("2 + 3", seed=7, index=9)
    assert ours is not again
    assert len(Group("g", ours, (attempt(ours, 0), attempt(again, 1))).trajectories) == 2


def test_answer_that_the_policy_does_not_see_does_not_part_siblings() -> None:
    ours = task("2 + 3")
    assert Group("g", ours, (attempt(dataclasses.replace(ours, hidden={}), 0),)).trajectories[0].task != ours


def test_siblings_may_come_in_any_order_and_in_any_length_and_some_may_be_missing() -> None:
    ours = task("2 + 3")
    siblings = [attempt(ours, sibling, length=1 + 3 * sibling) for sibling in (0, 1, 3)]
    for order in permutations(siblings):
        assert [member.sibling for member in Group("g", ours, order).trajectories] == [m.sibling for m in order]
    assert Group("g", ours, ()).trajectories == ()


@pytest.mark.parametrize("name", ADVANTAGES)
@settings(max_examples=30, deadline=None)
@given(groups=steps(), data=st.data())
def test_credit_goes_with_the_attempt_wherever_it_stands(name: str, groups: list[Group], data: st.DataObject) -> None:
    """Siblings in another order, ragged and with failures among them: each has the credit that it had."""
    shuffled = [
        dataclasses.replace(group, trajectories=tuple(data.draw(st.permutations(group.trajectories))))
        for group in groups
    ]
    notes, advantage = annotated(groups, kl=0.2), component(name)
    before = {
        t.trajectory_id: array
        for group, arrays in zip(groups, advantage(groups, notes), strict=True)
        for t, array in zip(group.trajectories, arrays, strict=True)
    }
    for group, arrays in zip(shuffled, advantage(shuffled, notes), strict=True):
        for t, array in zip(group.trajectories, arrays, strict=True):
            assert array == pytest.approx(before[t.trajectory_id], rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("name", BY_GROUP)
@settings(max_examples=30, deadline=None)
@given(groups=steps())
def test_other_groups_of_the_step_do_not_touch_a_groups_credit(name: str, groups: list[Group]) -> None:
    notes, advantage = annotated(groups, kl=0.2), component(name)
    together = advantage(groups, notes)
    for group, arrays in zip(groups, together, strict=True):
        (alone,) = advantage([group], notes)
        assert [array.tolist() for array in alone] == [array.tolist() for array in arrays]
