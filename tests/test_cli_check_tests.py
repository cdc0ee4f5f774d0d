"""`posttrain check tests` as a user meets it: files and domains, a ticker, a table or one JSON object, exit codes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from posttrain.cli import main

SIZE = "def f(x):\n    if x > 10:\n        return 'big'\n    return 'small'"
STRONG = {
    "task_id": "strong",
    "function": "f",
    "tests": [[[9], "small"], [[10], "small"], [[11], "big"], [[12], "big"], [[-20], "small"]],
    "solution": SIZE,
    "replies": [SIZE, "def f(x): return 'big'", "I cannot.", SIZE],
}
WEAK = {"task_id": "weak", "function": "f", "tests": [[[30], "big"], [[40], "big"]], "solution": SIZE}
OWN = """
from posttrain.domains.python_functions import PythonFunctions

class Own(PythonFunctions):
    levels = 1
"""


def posttrain(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["posttrain", "check", "tests", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    return int(stopped.value.code or 0)


def written(folder: Path, *tasks: dict[str, Any]) -> str:
    path = folder / "tasks.jsonl"
    path.write_text("".join(f"{json.dumps(task)}\n" for task in tasks))
    return str(path)


def test_a_file_whose_tasks_are_all_admitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert posttrain(monkeypatch, written(tmp_path, STRONG)) == 0
    printed = capsys.readouterr()
    assert printed.err == "1 of 1: strong admitted\n"
    assert "strong 5 1.00 1.00 1.00 0 0.50 admitted" in " ".join(printed.out.split())
    assert "1 of 1 tasks admitted, 0 refused." in printed.out


def test_one_refused_task_is_exit_code_1_and_one_json_object_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert posttrain(monkeypatch, written(tmp_path, STRONG, WEAK), "--json") == 1
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert (found["admitted"], found["refused"]) == (1, 1)
    assert (found["difficulty"]["num_tasks"], found["difficulty"]["tenths"][5]) == (1, 1)
    strong, weak = found["tasks"]
    assert (strong["admitted"], strong["reasons"], strong["mutation"]["score"]) == (True, [], 1.0)
    assert (weak["task"], weak["admitted"], weak["mutation"]["score"]) == ("weak", False, 0.5)
    assert (weak["coverage"]["line_share"], weak["coverage"]["branch_share"]) == (0.75, 0.5)
    assert any("mutation score" in reason for reason in weak["reasons"])
    assert printed.err.splitlines()[1] == f"2 of 2: weak refused: {weak['reasons'][0]}"


def test_a_flaky_reference_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    solution = "calls = []\ndef f(x):\n    calls.append(x)\n    return calls[0]"
    flaky = {"function": "f", "tests": [[[1], 1], [[2], 1]], "solution": solution}
    assert posttrain(monkeypatch, written(tmp_path, flaky)) == 1
    assert "refused: the reference answers differently from run to run" in capsys.readouterr().out


def test_a_domain_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.py").write_text(OWN)
    assert posttrain(monkeypatch, f"{tmp_path / 'own.py'}:Own", "--count", "1", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["admitted"], found["refused"], found["difficulty"]) == (2, 0, None)
    assert all(task["mutation"]["num_probes"] > 0 for task in found["tasks"])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["arithmetic"], "domain arithmetic, train task 0 of level 1, cannot be measured"),
        (["aritmetic"], "did you mean 'arithmetic'"),
        (["none.jsonl"], "none.jsonl cannot be read"),
        (["pyproject.toml"], "tasks are read from .jsonl files"),
        (["none.jsonl", "--count", "2"], "every task of a file is measured"),
        (["python_functions", "--sandbox", "locale"], "there is no sandbox 'locale'"),
    ],
)
def test_a_mistake_is_a_sentence_and_exit_code_2(
    arguments: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert posttrain(monkeypatch, *arguments) == 2
    printed = capsys.readouterr()
    assert sentence in printed.err
    assert printed.out == ""


def test_a_line_that_cannot_be_used_is_named_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, STRONG, WEAK | {"tests": []})
    assert posttrain(monkeypatch, path) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(f"posttrain: {path}:2: ")
    assert printed.err.count("\n") == 1
