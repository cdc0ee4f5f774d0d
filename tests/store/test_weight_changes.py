"""Changes of weights on disk: appended, cut off on resume, refused where damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from posttrain.core.errors import StoreError, UserError
from posttrain.core.types import SCHEMA_VERSION
from posttrain.store.position import Position
from posttrain.store.weight_changes import WeightChange, WeightLog, read_weight_changes


def change(stage: int, step: int, part: str = "format") -> WeightChange:
    return WeightChange(stage, step, "words", part, 0.2, 0.1, "it was “saturated”")


def test_changes_come_back_in_order_and_nothing_is_nothing(tmp_path: Path) -> None:
    path = tmp_path / "w.jsonl"
    log = WeightLog(path)
    log.append([])
    assert read_weight_changes(path) == []
    log.append([change(1, 3), change(1, 3, "process")])
    log.append([change(1, 4)])
    assert read_weight_changes(path) == [change(1, 3), change(1, 3, "process"), change(1, 4)]


def test_resume_cuts_off_what_is_done_again(tmp_path: Path) -> None:
    log = WeightLog(tmp_path / "w.jsonl")
    assert log.truncate_after(Position(0, 0)) == 0
    log.append([change(0, 9), change(1, 3), change(1, 4), change(2, 1)])
    assert log.truncate_after(Position(1, 3)) == 2
    assert read_weight_changes(tmp_path / "w.jsonl") == [change(0, 9), change(1, 3)]


def test_a_torn_last_line_is_left_out_and_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "w.jsonl"
    WeightLog(path).append([change(1, 3), change(1, 4)])
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:20])
    assert read_weight_changes(path) == [change(1, 3), change(1, 4)]
    assert WeightLog(path).truncate_after(Position(1, 9)) == 0
    assert path.read_bytes() == whole


def test_damage_and_newer_schemas_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.jsonl"
    WeightLog(path).append([change(1, 3)])
    line = path.read_text()
    path.write_text("{}\n" + line)
    with pytest.raises(StoreError, match="states no schema version"):
        read_weight_changes(path)
    path.write_text("nonsense\n" + line)
    with pytest.raises(StoreError, match=r"line 1 of .* is no record of a weight"):
        read_weight_changes(path)
    path.write_text(line.replace(f'"schema_version": {SCHEMA_VERSION}', '"schema_version": 99'))
    with pytest.raises(UserError, match="newer posttrain"):
        read_weight_changes(path)
