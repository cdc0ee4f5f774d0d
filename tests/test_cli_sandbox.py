"""`posttrain sandbox run`: what is printed, and with which exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "posttrain", "sandbox", "run", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("source", "result_class", "exit_code"),
    [
        ("print(input())", "ok", 0),
        ("raise SystemExit(3)", "program_error", 3),
        ("while True: pass", "time_limit", None),
        ("#!/bin/sh\nread x; echo $x", "ok", 0),
    ],
)
def test_one_json_value_and_success_whatever_the_program_did(
    tmp_path: Path, source: str, result_class: str, exit_code: int | None
) -> None:
    (tmp_path / "program").write_text(source)
    (tmp_path / "input").write_text("hello\n")
    done = run(str(tmp_path / "program"), "--stdin", str(tmp_path / "input"), "--wall-s", "1", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["class"], found["exit_code"]) == (result_class, exit_code)
    assert found["stdout"] == ("hello\n" if result_class == "ok" else "")
    assert {"stderr", "wall_s", "cpu_s", "peak_memory_mib", "tier"} <= found.keys()


@pytest.mark.parametrize("option", [["--wall-s", "0"], ["--memory-mib", "-1"], ["--sandbox", "locale"]])
def test_bad_input_is_the_users(tmp_path: Path, option: list[str]) -> None:
    (tmp_path / "program.py").write_text("")
    assert run(str(tmp_path / "program.py"), *option).returncode == 2
    assert run(str(tmp_path / "missing.py")).returncode == 2
