"""L9: statistics over all scored attempts, filters after them, on whole groups, and counted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from posttrain.core.types import Boundary, Failure, Group, Reward, Split, StopReason, Task, Trajectory, Verdict
from posttrain.learn.samples import Selection, to_samples
from posttrain.rewards.group_mean import GroupMean


def attempt(sibling: int, reward: float | None, group: str = "g", **fields: object) -> Trajectory:
    task = Task("toy", (), {}, Split.TRAIN, seed=0, index=0, level=1)
    sampled = np.asarray([False, False, True, True])
    return replace(
        Trajectory(
            f"{group}/{sibling}", task, group, sibling, np.arange(4, dtype=np.int32), sampled,
            -sampled.astype(np.float32), np.where(sampled, 3, -1).astype(np.int32), (), "", StopReason.STOP,
            verdict=Verdict.correct(), reward=None if reward is None else Reward(reward),
        ),
        **fields,  # type: ignore[arg-type]
    )  # fmt: skip


def group(*attempts: Trajectory) -> Group:
    return Group(attempts[0].group_id, attempts[0].task, attempts)


def selected(*groups: Group, truncated: str = "keep") -> Selection:
    return to_samples(groups, GroupMean()(groups), truncated=truncated)  # type: ignore[arg-type]


def test_masked_truncated_attempt_still_counts_in_the_mean() -> None:
    siblings = group(attempt(0, 1.0), attempt(1, 0.5), attempt(2, 0.0, stop=StopReason.MAX_NEW_TOKENS))
    chosen = selected(siblings, truncated="mask")
    assert [float(s.advantages[2]) for s in chosen.samples] == [0.5, 0.0]
    assert chosen.num_masked_truncated == 1


def test_unscored_attempts_are_in_no_statistic_and_give_no_sample() -> None:
    lost = [
        attempt(2, 9.0, failure=Failure(Boundary.SANDBOX, "the pool was closed")),
        attempt(3, 9.0, verdict=Verdict.none("timeout of ours")),
        attempt(4, 9.0, verdict=None),
        attempt(5, None),
    ]
    siblings = group(attempt(0, 1.0), attempt(1, 0.0), *lost)
    credit = GroupMean()([siblings])[0]
    assert [float(array[2]) for array in credit] == [0.5, -0.5, 0, 0, 0, 0]
    chosen = selected(siblings)
    assert [s.trajectory_id for s in chosen.samples] == ["g/0", "g/1"]
    assert chosen.num_without_verdict == 4


def test_group_without_signal_is_left_out_whole_and_counted() -> None:
    constant = group(attempt(0, 0.1, "a"), attempt(1, 0.1, "a"), attempt(2, 0.1, "a"))
    alive = group(attempt(0, 1.0, "b"), attempt(1, 0.0, "b"))
    chosen = selected(constant, alive)
    assert [s.group_id for s in chosen.samples] == ["b", "b"]
    assert (chosen.num_groups_without_signal, chosen.num_groups_of_one) == (1, 0)


def test_group_with_signal_keeps_its_average_attempts() -> None:
    chosen = selected(group(attempt(0, 1.0), attempt(1, 0.5), attempt(2, 0.0)))
    assert [float(s.advantages[2]) for s in chosen.samples] == [0.5, 0.0, -0.5]


def test_group_of_one_has_advantage_zero_and_is_counted() -> None:
    alone = group(attempt(0, 1.0))
    assert not GroupMean()([alone])[0][0].any()
    chosen = selected(alone)
    assert (chosen.samples, chosen.num_groups_without_signal, chosen.num_groups_of_one) == ([], 1, 1)
