"""L9: statistics over all scored attempts, filters after them, on whole groups, and counted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from tests.rewards.parts import (
    ADVANTAGES,
    BY_GROUP,
    NOTHING,
    annotated,
    attempt,
    component,
    credit,
    group,
    siblings,
    steps,
)

from posttrain.core.types import Boundary, Failure, Group, StopReason, Verdict
from posttrain.learn.samples import Selection, to_samples
from posttrain.rewards.group_mean import GroupMean


def selected(*groups: Group, **options: Any) -> Selection:
    return to_samples(groups, GroupMean()(groups, NOTHING), **options)


def test_masked_truncated_attempt_still_counts_in_the_mean() -> None:
    cut = attempt(0.0, name="g/2", stop=StopReason.MAX_NEW_TOKENS)
    chosen = selected(group(attempt(1.0, name="g/0"), attempt(0.5, name="g/1"), cut), truncated="mask")
    assert [float(s.advantages[2]) for s in chosen.samples] == [0.5, 0.0]
    assert chosen.num_masked_truncated == 1


def test_unscored_attempts_are_in_no_statistic_and_give_no_sample() -> None:
    lost = [
        attempt(9.0, name="g/2", failure=Failure(Boundary.SANDBOX, "the pool was closed")),
        attempt(9.0, name="g/3", verdict=Verdict.none("timeout of ours")),
        attempt(9.0, name="g/4", verdict=None),
        attempt(None, name="g/5"),
    ]
    some = group(attempt(1.0, name="g/0"), attempt(0.0, name="g/1"), *lost)
    assert credit(GroupMean()([some], NOTHING)[0], some) == [0.5, -0.5, 0, 0, 0, 0]
    chosen = selected(some)
    assert [s.trajectory_id for s in chosen.samples] == ["g/0", "g/1"]
    assert chosen.num_without_verdict == 4


@pytest.mark.parametrize("name", ADVANTAGES)
@settings(max_examples=40, deadline=None)
@given(groups=steps())
def test_attempts_without_a_verdict_might_as_well_not_be_there(name: str, groups: list[Group]) -> None:
    notes = annotated(groups, kl=0.2)
    arrays = component(name)(groups, notes)
    without = [Group(g.group_id, g.task, tuple(t for t in g.trajectories if t.scored)) for g in groups]
    expected = component(name)(without, notes)
    for step, arrays_G, expected_G in zip(groups, arrays, expected, strict=True):
        scored = [array for t, array in zip(step.trajectories, arrays_G, strict=True) if t.scored]
        assert [array.tolist() for array in scored] == [array.tolist() for array in expected_G]
        for trajectory, array in zip(step.trajectories, arrays_G, strict=True):
            assert len(array) == len(trajectory.tokens)
            assert trajectory.scored or not array.any()


def test_group_without_signal_is_left_out_whole_and_counted() -> None:
    chosen = selected(siblings([0.1, 0.1, 0.1], name="a"), siblings([1.0, 0.0], name="b", index=1))
    assert [s.group_id for s in chosen.samples] == ["b", "b"]
    assert (chosen.num_groups_without_signal, chosen.num_groups_of_one) == (1, 0)


def test_group_without_signal_may_be_kept_whole_and_is_counted_all_the_same() -> None:
    constant = group(
        attempt(0.5, name="a/0"),
        attempt(0.5, name="a/1", stop=StopReason.MAX_CONTEXT),
        attempt(None, name="a/2"),
    )
    chosen = selected(constant, silent_groups="keep")
    assert [s.trajectory_id for s in chosen.samples] == ["a/0", "a/1"]
    assert not any(s.advantages.any() for s in chosen.samples)
    assert all(s.weight > 0 for s in chosen.samples)
    assert (chosen.num_groups_without_signal, chosen.num_without_verdict) == (1, 1)


def test_signal_is_looked_for_in_the_whole_group_before_attempts_are_masked() -> None:
    cut = StopReason.MAX_NEW_TOKENS
    mixed = group(attempt(1.0, name="g/0", stop=cut), attempt(0.0, name="g/1", stop=cut), attempt(0.5, name="g/2"))
    chosen = selected(mixed, truncated="mask")
    assert [s.trajectory_id for s in chosen.samples] == ["g/2"]
    assert (chosen.num_groups_without_signal, chosen.num_masked_truncated) == (0, 2)


def test_group_with_signal_keeps_its_average_attempts() -> None:
    chosen = selected(siblings([1.0, 0.5, 0.0]))
    assert [float(s.advantages[2]) for s in chosen.samples] == [0.5, 0.0, -0.5]


@pytest.mark.parametrize("name", [*BY_GROUP, "part_mean_std", "batch_whitened"])
def test_group_of_one_has_advantage_zero_and_is_counted(name: str) -> None:
    """One attempt, and one scored attempt beside one that was not; REINFORCE++ with the group as its baseline."""
    advantage = component(name, group_baseline=True) if name == "batch_whitened" else component(name)
    groups = [siblings([1.0], name="a"), siblings([1.0, None], name="b", index=1), siblings([1.0, 0.0], name="c")]
    arrays = advantage(groups, NOTHING)
    assert not any(array.any() for arrays_G in arrays[:2] for array in arrays_G)
    chosen = to_samples(groups, arrays)
    assert [s.group_id for s in chosen.samples] == ["c", "c"]
    assert (chosen.num_groups_without_signal, chosen.num_groups_of_one) == (2, 2)
