from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from posttrain.core.errors import StoreError, UserError
from posttrain.core.types import SCHEMA_VERSION
from posttrain.store.checkpoints import MARKER, Checkpoint, Checkpoints


def write(checkpoints: Checkpoints, label: str) -> Checkpoint:
    path = checkpoints.begin(label)
    (path / "weights.bin").write_text(label)
    return checkpoints.commit(path, {"label": label})


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_no_checkpoint_is_none(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "checkpoints", keep=1).latest() is None


def test_latest_is_the_last_committed_with_its_state(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=3)
    write(checkpoints, "sft-000100")
    last = write(checkpoints, "rl-000010")
    assert Checkpoints(tmp_path, keep=3).latest() == last
    assert last.state == {"label": "rl-000010"}
    assert (last.path / "weights.bin").read_text() == "rl-000010"


def test_the_same_step_can_be_written_again(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    first, second = write(checkpoints, "rl-000010"), write(checkpoints, "rl-000010")
    assert checkpoints.latest() == second != first


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step in range(5):
        write(checkpoints, f"rl-{step}")
    assert names(tmp_path) == ["000003-rl-3", "000004-rl-4"]


def test_a_half_written_one_is_ignored_and_cleaned_by_the_next(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    whole = write(checkpoints, "rl-1")
    half = checkpoints.begin("rl-2")
    (half / "weights.bin").write_text("ha")
    assert checkpoints.latest() == whole
    assert checkpoints.begin("rl-2").is_dir()
    assert names(tmp_path) == ["000000-rl-1", "000001-rl-2"]
    assert not (tmp_path / "000001-rl-2" / "weights.bin").exists()


def test_a_damaged_one_neither_counts_as_kept_nor_is_removed(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=1)
    first = write(checkpoints, "rl-1")
    path = checkpoints.begin("rl-2")
    (path / "weights.bin").write_text("x")
    checkpoints.commit(path, {})
    (path / "weights.bin").unlink()
    assert checkpoints.latest() is None
    write(checkpoints, "rl-3")
    assert names(tmp_path) == ["000001-rl-2", "000002-rl-3"]
    assert not first.path.exists()


def test_a_torn_marker_marks_nothing(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    first, second = write(checkpoints, "rl-1"), write(checkpoints, "rl-2")
    (second.path / MARKER).write_text("{")
    assert checkpoints.latest() == first


def test_a_checkpoint_of_a_newer_posttrain_is_refused_rather_than_passed_over(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    last = write(checkpoints, "rl-1")
    (last.path / MARKER).write_text(json.dumps({"schema_version": SCHEMA_VERSION + 1, "state": {}, "files": {}}))
    with pytest.raises(UserError, match="newer posttrain"):
        checkpoints.latest()


def test_removal_begins_with_the_marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = Checkpoints(tmp_path, keep=1)
    first = write(checkpoints, "rl-1")

    def refuse(path: Path) -> None:
        raise OSError(errno.EIO, f"cannot remove {path}")

    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", refuse)
        with pytest.raises(StoreError, match="cannot remove"):
            write(checkpoints, "rl-2")
    assert not (first.path / MARKER).exists()
    write(checkpoints, "rl-3")
    assert names(tmp_path) == ["000002-rl-3"]


def test_the_newest_that_is_worth_keeping_stays_beyond_those_that_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=1, worth_keeping=lambda state: bool(state["good"]))
    for number, good in enumerate([True, True, False, False]):
        checkpoints.commit(checkpoints.begin(f"n{number}"), {"good": good, "number": number})
    assert [found.state["number"] for found in checkpoints.whole()] == [1, 3]


def test_going_back_to_one_removes_the_newer_ones(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=3)
    for number in range(3):
        checkpoints.commit(checkpoints.begin(f"n{number}"), {"number": number})
    checkpoints.remove_after(checkpoints.whole()[0])
    latest = checkpoints.latest()
    assert latest is not None
    assert latest.state == {"number": 0}
    assert len(checkpoints.whole()) == 1
