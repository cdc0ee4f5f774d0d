"""The soak counts what it says it counts, and its short form finds the sandbox right and tidy."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.soak_census import census
from benchmarks.soak_programs import NUM_INPUTS, innocent
from benchmarks.soak_sandbox import Window, draw, failures, soak


def test_a_census_sees_processes_descriptors_and_files(tmp_path: Path) -> None:
    before = census(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("")
    fd = os.open(tmp_path, os.O_RDONLY)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        more = census(tmp_path).more_than(before)
    finally:
        child.communicate(b"\n")
        os.close(fd)
    assert (more["processes"], more["descriptors"], more["temporary_files"]) == (1, 2, 2)
    assert (more["mounts"], more["cgroups"]) == (0, 0)
    assert not any(
        number for name, number in census(tmp_path).more_than(before).items() if name in ("processes", "descriptors")
    )


def test_an_innocent_program_gives_what_is_expected_of_it() -> None:
    rng = random.Random(0)
    for program in (innocent(rng) for _ in range(50)):
        names: dict[str, object] = {}
        exec(program.source, names)
        function = names[program.function]
        assert callable(function)
        assert [function(*arguments) for arguments in program.inputs] == program.expected
        assert len(program.inputs) == NUM_INPUTS


def test_what_went_wrong_is_said() -> None:
    assert failures(0, 0, {"processes": 0.0, "resident_mib": 5.0}) == []
    found = failures(1, 2, {"processes": 3.0, "mounts": 0.0, "resident_mib": 40.0})
    assert [sentence.split()[0] for sentence in found] == ["1", "2", "3", "40"]


def test_a_picture_has_both_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")  # without a Chromium
    draw([Window(number % 2 == 1, 10.0 * number, 10.0, 100 + number) for number in range(12)], 0.05, tmp_path)
    text = (tmp_path / "soak.svg").read_text()
    assert text.count("<polyline") == 2
    assert "5% hostile" in text
    assert not (tmp_path / "soak.png").exists()


@pytest.mark.slow
def test_a_short_soak_is_right_and_leaves_nothing_behind(tmp_path: Path) -> None:
    found = soak(minutes=0.3, hostile=0.05, seed=0, out=tmp_path)
    assert found["failures"] == [], found["complaints"]
    assert found["num_hostile"] > 0
    assert {window["hostile"] for window in found["windows"]} == {True, False}
    assert json.loads((tmp_path / "soak.json").read_text())["left"]["processes"] == 0
