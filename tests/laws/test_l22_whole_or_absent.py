"""L22: a checkpoint is whole or absent; a kill at any write leaves a store that opens and resumes.

A child process is really killed (SIGKILL), once at every point where it touches the disk: opening, syncing, renaming
and removing are found by an audit hook, and the points inside a long write are stated by the writer.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from posttrain.core.errors import UserError
from posttrain.store import files
from posttrain.store.checkpoints import MARKER, Checkpoint, Checkpoints
from posttrain.store.metrics import MetricsLog, read_metrics
from posttrain.store.position import Position
from posttrain.store.run_directory import Manifest, RunDirectory

DISK_EVENTS = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "shutil.rmtree"}
WEIGHTS = bytes(range(256)) * 40
STEPS = 6


@pytest.fixture(autouse=True)
def quick_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed process loses nothing of what it gave to the system, so these tests need not wait for the disk."""
    monkeypatch.setattr("os.fsync", lambda _: None)


class CrashPoints:
    """In a child process: counts what touches the disk and kills the process before the chosen one."""

    def __init__(self, fatal: int) -> None:
        self._left = fatal

    def arm(self) -> None:
        sys.addaudithook(lambda event, _: self.touch() if event in DISK_EVENTS else None)
        os.fsync = lambda _: self.touch()  # type: ignore[assignment]

    def touch(self) -> None:
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1


def killed_everywhere(folder: Path, work: Callable[[Path, CrashPoints], None]) -> Iterator[Path]:
    """The folder that `work` leaves behind for every point at which it can be killed."""
    for fatal in range(10_000):
        place = folder / f"killed-{fatal:04d}"
        place.mkdir()
        child = os.fork()
        if child == 0:
            points = CrashPoints(fatal)
            points.arm()
            try:
                work(place, points)
            except BaseException:
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the work itself failed"
        yield place
        if not os.WIFSIGNALED(status):
            assert fatal > 10, "it was killed at too few points to prove anything"
            return
    raise AssertionError("the work never came to its end")


def write_checkpoint(checkpoints: Checkpoints, step: int, points: CrashPoints) -> Checkpoint:
    path = checkpoints.begin(f"rl-{step:06d}")
    (path / "ranks").mkdir()
    for name in ("weights.bin", "ranks/0.bin"):
        with (path / name).open("wb", buffering=0) as file:
            for start in range(0, len(WEIGHTS), 4096):
                points.touch()
                file.write(WEIGHTS[start : start + 4096])
    return checkpoints.commit(path, {"step": step})


def assert_whole(checkpoint: Checkpoint) -> None:
    assert (checkpoint.path / "weights.bin").read_bytes() == WEIGHTS
    assert (checkpoint.path / "ranks" / "0.bin").read_bytes() == WEIGHTS


def test_kill_at_any_write_leaves_the_last_whole_checkpoint(tmp_path: Path) -> None:
    def work(place: Path, points: CrashPoints) -> None:
        checkpoints = Checkpoints(place, keep=2)
        for step in range(1, 5):
            write_checkpoint(checkpoints, step, points)
            descriptor = os.open(place / "committed", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.write(descriptor, b".")
            os.close(descriptor)

    reached = set()
    for place in killed_everywhere(tmp_path, work):
        committed = (place / "committed").stat().st_size if (place / "committed").exists() else 0
        latest = Checkpoints(place, keep=2).latest()
        step = latest.state["step"] if latest is not None else 0
        assert committed <= step <= committed + 1, "what commit returned is there, and nothing unfinished is"
        if latest is not None:
            assert_whole(latest)
        reached.add(step)

        resumed = write_checkpoint(Checkpoints(place, keep=2), step + 1, CrashPoints(fatal=-1))
        assert Checkpoints(place, keep=2).latest() == resumed
        folders = [entry for entry in place.iterdir() if entry.is_dir()]
        for entry in folders:  # half-written and half-removed ones are gone
            assert_whole(Checkpoint(entry, json.loads((entry / MARKER).read_bytes())["state"]))
        assert len(folders) <= 2
    assert reached == {0, 1, 2, 3, 4}


def test_the_marker_is_written_after_every_file_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real_sync, real_replace = files.sync, Path.replace

    def sync(path: Path) -> None:
        synced.append(path.name)
        real_sync(path)

    def replace(self: Path, target: Path) -> Path:
        synced.append(f"rename to {target.name}")
        return real_replace(self, target)

    monkeypatch.setattr("posttrain.store.checkpoints.sync", sync)
    monkeypatch.setattr(Path, "replace", replace)
    checkpoint = write_checkpoint(Checkpoints(tmp_path, keep=1), 1, CrashPoints(fatal=-1))
    marked = synced.index(f"rename to {MARKER}")
    assert {"weights.bin", "0.bin", "ranks", checkpoint.path.name, tmp_path.name} <= set(synced[:marked])


def test_a_checkpoint_with_a_file_cut_short_is_passed_over(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    first = write_checkpoint(checkpoints, 1, CrashPoints(fatal=-1))
    second = write_checkpoint(checkpoints, 2, CrashPoints(fatal=-1))
    os.truncate(second.path / "weights.bin", 100)
    assert checkpoints.latest() == first


def test_kill_at_any_write_and_resume_leaves_every_step_once(tmp_path: Path) -> None:
    def work(place: Path, points: CrashPoints) -> None:
        checkpoints, metrics = Checkpoints(place / "checkpoints", keep=1), MetricsLog(place / "metrics.jsonl")
        latest = checkpoints.latest()
        done = latest.state["step"] if latest is not None else 0
        metrics.truncate_after(Position(0, done))
        for step in range(done + 1, STEPS + 1):
            metrics.append(Position(0, step), "rl", {"reward": step / STEPS})
            if step % 2 == 0:
                write_checkpoint(checkpoints, step, points)

    for place in killed_everywhere(tmp_path, work):
        work(place, CrashPoints(fatal=-1))
        read = read_metrics(place / "metrics.jsonl")
        assert [record.step for record in read.records] == list(range(1, STEPS + 1))
        assert not read.torn


def test_kill_while_a_run_is_created_leaves_a_run_or_a_name_that_is_free(tmp_path: Path) -> None:
    manifest = Manifest.now("seedling", 0, ["posttrain", "train"])

    def work(place: Path, points: CrashPoints) -> None:
        del points
        RunDirectory.create(place / "runs" / "first", manifest, {"seed": 0})

    for place in killed_everywhere(tmp_path, work):
        path = place / "runs" / "first"
        with contextlib.suppress(UserError):  # it was whole before the kill
            RunDirectory.create(path, manifest, {"seed": 0})
        assert RunDirectory.open(path).manifest() == manifest
        assert RunDirectory.open(path).config() == {"seed": 0}
