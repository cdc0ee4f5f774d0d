from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from posttrain.core.errors import StorageFullError, StoreError, UserError
from posttrain.core.types import SCHEMA_VERSION
from posttrain.store.files import read_json, write_bytes, write_json


def full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_json_comes_back_without_its_schema_version(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"name": "ü", "pair": (1, 2.5), "none": None})
    assert read_json(tmp_path / "a.json") == {"name": "ü", "pair": [1, 2.5], "none": None}
    assert json.loads((tmp_path / "a.json").read_text())["schema_version"] == SCHEMA_VERSION


def test_a_number_that_is_not_finite_is_null(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"bad": [float("nan"), float("inf")], "deep": {"x": -float("inf")}})
    assert read_json(tmp_path / "a.json") == {"bad": [None, None], "deep": {"x": None}}


def test_a_newer_schema_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"schema_version": SCHEMA_VERSION + 1}))
    with pytest.raises(UserError, match=r"newer posttrain .* upgrade"):
        read_json(tmp_path / "a.json")


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"schema_version": "1"}', '{"schema_version": 0}'])
def test_what_posttrain_did_not_write_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(StoreError, match=r"a\.json"):
        read_json(tmp_path / "a.json")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"there is no file .*a\.json"):
        read_json(tmp_path / "a.json")


def test_a_full_disk_keeps_the_old_file_and_says_how_much_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.bin"
    write_bytes(path, b"old")
    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(StorageFullError, match=r"the disk is full: .*a\.bin could not be written \([\d.]+ MiB free"):
        write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.bin"], "the unfinished file is removed"


def test_another_refusal_of_the_system_is_a_store_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="could not be written: No such file or directory"):
        write_bytes(tmp_path / "missing" / "a.bin", b"")


def test_what_a_killed_write_left_is_written_over(tmp_path: Path) -> None:
    (tmp_path / ".a.bin.tmp").write_bytes(b"half")
    write_bytes(tmp_path / "a.bin", b"whole")
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.bin"]
