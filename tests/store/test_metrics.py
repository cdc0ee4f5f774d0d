from __future__ import annotations

import errno
import json
import math
import os
import resource
import signal
from pathlib import Path

import pytest

from posttrain.core.errors import StorageFullError, StoreError, UserError
from posttrain.core.types import SCHEMA_VERSION
from posttrain.store.metrics import MetricsLog, read_metrics
from posttrain.store.position import Position


def log_of(path: Path, *steps: tuple[int, int]) -> MetricsLog:
    log = MetricsLog(path)
    for stage_index, step in steps:
        log.append(Position(stage_index, step), ["sft", "rl"][stage_index], {"loss": step / 10})
    return log


def positions(path: Path) -> list[tuple[int, int]]:
    return [(record.stage_index, record.step) for record in read_metrics(path).records]


def test_records_come_back_in_order_with_their_values(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    written = [log_of(path).append(Position(1, 3), "rl", {"reward": 0.5, "pass/words": 1})]
    written += [log_of(path).append(Position(1, 4), "rl", {"reward": 0.25})]
    assert list(read_metrics(path).records) == written


def test_a_value_that_is_not_finite_is_null_on_disk_and_nan_when_read(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    MetricsLog(path).append(Position(0, 1), "sft", {"loss": float("nan")})
    assert json.loads(path.read_text())["values"] == {"loss": None}
    assert math.isnan(read_metrics(path).records[0].values["loss"])


def test_no_file_is_no_records(tmp_path: Path) -> None:
    assert read_metrics(tmp_path / "metrics.jsonl").records == ()


@pytest.mark.parametrize("torn", [b"{", b'{"schema_version": 1, "stage": "r', b'{"schema_version": 1}'])
def test_a_torn_last_line_is_left_out_and_said(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "metrics.jsonl"
    log_of(path, (0, 1), (0, 2))
    path.write_bytes(path.read_bytes() + torn)
    read = read_metrics(path)
    assert len(read.records) == 2
    assert "cut off" in read.torn


def test_a_torn_last_line_does_not_spoil_the_next(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    log_of(path, (0, 1))
    path.write_bytes(path.read_bytes() + b'{"schema')
    log_of(path, (0, 2))
    assert positions(path) == [(0, 1), (0, 2)]
    assert not read_metrics(path).torn


def test_a_damaged_line_in_the_middle_is_an_error_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    log_of(path, (0, 1))
    path.write_bytes(path.read_bytes() + b"garbage\n")
    log_line = path.read_bytes().splitlines()[0] + b"\n"
    path.write_bytes(path.read_bytes() + log_line)
    with pytest.raises(StoreError, match="line 2 of"):
        read_metrics(path)


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(json.dumps({"schema_version": SCHEMA_VERSION + 1}) + "\n")
    with pytest.raises(UserError, match="newer posttrain"):
        read_metrics(path)


def test_truncation_keeps_the_steps_up_to_and_with_the_position(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    log = log_of(path, (0, 1), (0, 2), (1, 1), (1, 2), (1, 3))
    assert log.truncate_after(Position(1, 1)) == 2
    assert positions(path) == [(0, 1), (0, 2), (1, 1)]
    assert log.truncate_after(Position(1, 1)) == 0
    log.append(Position(1, 2), "rl", {})
    assert positions(path)[-1] == (1, 2)
    assert log.truncate_after(Position(0, 0)) == 4
    assert positions(path) == []


def test_room_that_ends_inside_a_line_leaves_the_lines_before(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    log = log_of(path, (0, 1))
    unlimited, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 20, unlimited[1]))
    try:
        with pytest.raises(StoreError, match=r"metrics\.jsonl could not be written"):
            log.append(Position(0, 2), "sft", {"loss": 1.0})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        signal.signal(signal.SIGXFSZ, handler)
    assert positions(path) == [(0, 1)]
    assert not read_metrics(path).torn


def test_a_full_disk_leaves_the_lines_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "metrics.jsonl"
    log = log_of(path, (0, 1))

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(StorageFullError, match=r"metrics\.jsonl"):
            log.append(Position(0, 2), "sft", {"loss": 1.0})
    assert positions(path) == [(0, 1)]
    log.append(Position(0, 2), "sft", {"loss": 1.0})
    assert positions(path) == [(0, 1), (0, 2)]
    assert not read_metrics(path).torn
