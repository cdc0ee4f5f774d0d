from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from posttrain.core.errors import StoreError, UserError
from posttrain.core.types import (
    Boundary,
    Cost,
    Detection,
    Failure,
    Reward,
    StopReason,
    Trajectory,
    Verdict,
    VerdictStatus,
)
from posttrain.store.attempt_facts import attempt_facts
from posttrain.store.position import Position
from posttrain.store.trajectories import TrajectoryStore, read_trajectories

Make = Callable[..., Trajectory]
FIRST = Position(1, 1)


def test_a_row_is_the_attempt_and_its_tasks_coordinates(tmp_path: Path, make_trajectory: Make) -> None:
    written = make_trajectory()
    store = TrajectoryStore(tmp_path)
    store.write(FIRST, [written])
    (row,) = store.read(FIRST)
    task = written.task
    assert row.position == FIRST
    assert (row.trajectory_id, row.group_id, row.sibling) == ("t0", "g0", 1)
    assert (row.task_id, row.domain, row.level, row.split, row.seed, row.index) == (
        task.task_id,
        task.domain,
        task.level,
        task.split,
        task.seed,
        task.index,
    )
    assert row.prompt == task.prompt
    assert (row.reply, row.stop) == (written.reply, written.stop)
    assert (row.verdict, row.reward, row.failure, row.cost) == (written.verdict, written.reward, None, written.cost)
    np.testing.assert_array_equal(row.behavior_logprobs, written.behavior_logprobs)


def test_all_of_a_reward_comes_back_and_files_from_before_parts_were_withheld_are_read(
    tmp_path: Path, make_trajectory: Make
) -> None:
    reward = Reward(0.5, {"a": 0.5, "b": 1.0}, {"a": 1.0, "b": 0.1}, {"a": True}, ("b",), {"a": 0.2})
    store = TrajectoryStore(tmp_path)
    path = store.write(FIRST, [make_trajectory(reward=reward)])
    assert store.read(FIRST)[0].reward == reward
    pq.write_table(pq.read_table(path).drop_columns(["reward_withheld", "reward_null_levels"]), path)
    assert store.read(FIRST)[0].reward == dataclasses.replace(reward, withheld=(), null_levels={})


def test_what_a_task_hides_is_not_stored(tmp_path: Path, make_trajectory: Make) -> None:
    path = TrajectoryStore(tmp_path).write(FIRST, [make_trajectory()])
    assert "hidden" not in pq.read_schema(path).names
    assert {"tokens", "sampled", "behavior_logprobs", "versions", "status"} <= set(pq.read_schema(path).names)


def test_an_attempt_without_verdict_reward_or_tokens_comes_back(tmp_path: Path, make_trajectory: Make) -> None:
    empty = np.zeros(0, dtype=np.int32)
    failure = Failure(Boundary.ENGINE, "engine ended")
    written = make_trajectory(
        tokens=empty,
        sampled=empty.astype(np.bool_),
        behavior_logprobs=empty.astype(np.float32),
        versions=empty,
        verdict=None,
        reward=None,
        failure=failure,
        stop=StopReason.ABORTED,
        cost=Cost(),
    )
    store = TrajectoryStore(tmp_path)
    store.write(FIRST, [written])
    (row,) = store.read(FIRST)
    assert (row.verdict, row.reward, row.failure) == (None, None, failure)
    assert len(row.tokens) == 0
    assert row.status is VerdictStatus.NO_VERDICT


def test_unscored_rows_are_those_of_failures_of_ours(tmp_path: Path, make_trajectory: Make) -> None:
    store = TrajectoryStore(tmp_path)
    wrong = make_trajectory("wrong", verdict=Verdict.incorrect("not 4"))
    silent = make_trajectory("silent", verdict=Verdict.none("sandbox gone"), reward=None)
    unasked = make_trajectory("unasked", verdict=None, reward=None, failure=Failure(Boundary.SANDBOX, "no bwrap"))
    store.write(FIRST, [make_trajectory("right"), wrong, silent])
    late = make_trajectory("late", failure=Failure(Boundary.ENVIRONMENT, "close failed"))
    store.write(Position(1, 2), [unasked, wrong, late])
    assert [(row.trajectory_id, row.why_unscored) for row in store.unscored()] == [
        ("silent", "verifier: sandbox gone"),
        ("unasked", "sandbox: no bwrap"),
        ("late", "environment: close failed"),
    ]
    assert [row.why_unscored for row in store.read(FIRST)][:2] == ["", ""]


def test_writing_a_step_again_replaces_it(tmp_path: Path, make_trajectory: Make) -> None:
    store = TrajectoryStore(tmp_path)
    store.write(FIRST, [make_trajectory("a"), make_trajectory("b")])
    store.write(FIRST, [make_trajectory("c")])
    assert [row.trajectory_id for row in store.rows()] == ["c"]


def test_rows_come_step_by_step(tmp_path: Path, make_trajectory: Make) -> None:
    store = TrajectoryStore(tmp_path)
    for position in (Position(1, 10), Position(0, 1), Position(1, 9)):
        store.write(position, [make_trajectory(str(position), length=4 + position.step)])
    assert store.positions() == [Position(0, 1), Position(1, 9), Position(1, 10)]
    assert [row.trajectory_id for row in store.rows()] == ["00-000001", "01-000009", "01-000010"]
    assert [len(row.tokens) for row in store.rows()] == [5, 13, 14]
    assert store.truncate_after(Position(1, 9)) == 1
    assert store.positions() == [Position(0, 1), Position(1, 9)]


def test_a_step_without_attempts_is_a_file_without_rows(tmp_path: Path) -> None:
    store = TrajectoryStore(tmp_path)
    store.write(FIRST, [])
    assert store.read(FIRST) == []


def test_missing_and_damaged_files_are_named(tmp_path: Path, make_trajectory: Make) -> None:
    store = TrajectoryStore(tmp_path)
    with pytest.raises(StoreError, match="there is no file"):
        store.read(FIRST)
    path = store.write(FIRST, [make_trajectory()])
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(StoreError, match="is no whole file of trajectories"):
        store.read(FIRST)


def test_a_newer_schema_is_refused(tmp_path: Path, make_trajectory: Make) -> None:
    path = TrajectoryStore(tmp_path).write(FIRST, [make_trajectory()])
    newer = pq.read_table(path).replace_schema_metadata({b"posttrain.schema_version": b"99"})
    pq.write_table(newer, path)
    with pytest.raises(UserError, match="newer posttrain"):
        read_trajectories(path)


def test_what_detectors_a_second_verifier_and_quarantine_said_comes_back(tmp_path: Path, make_trajectory: Make) -> None:
    written = make_trajectory(
        detections=(Detection("hedged", 13, "5 “or” 7", grave=True), Detection("padding", 19, "spaces")),
        held_out=Verdict.incorrect("another number", answer="5", verifier_version="3"),
        quarantine="the verifier pays for a cheat",
    )
    store = TrajectoryStore(tmp_path)
    store.write(FIRST, [written])
    (row,) = store.read(FIRST)
    assert (row.detections, row.held_out, row.quarantine) == (written.detections, written.held_out, written.quarantine)
    (facts,) = attempt_facts(store)
    assert (facts.suspect, facts.held_out, facts.quarantine) == (True, VerdictStatus.INCORRECT, written.quarantine)
    assert facts.reward_parts == {"correct": 1.0}


def test_a_run_from_before_there_were_detectors_still_opens(tmp_path: Path, make_trajectory: Make) -> None:
    store = TrajectoryStore(tmp_path)
    path = store.write(FIRST, [make_trajectory(detections=(Detection("hedged", 13, "or", grave=True),))])
    old = pq.read_table(path).drop_columns(["detections", "held_out", "quarantine"])
    pq.write_table(old.replace_schema_metadata({b"posttrain.schema_version": b"1"}), path)
    (row,) = store.read(FIRST)
    assert (row.detections, row.held_out, row.quarantine, row.reply) == ((), None, "", "4\n<b>")
    (facts,) = attempt_facts(store)
    assert (facts.detections, facts.held_out, facts.quarantine) == ((), None, "")
