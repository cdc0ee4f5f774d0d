"""Tasks from a file: what a line may hold, and what is said of one that cannot be measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from posttrain.core.errors import UserError
from posttrain.verifiers.quality.measure import Subject
from posttrain.verifiers.quality.task_file import read_subjects

TASK: dict[str, Any] = {"function": "f", "tests": [[[1], 2], [[2], 3]], "solution": "def f(x):\n    return x + 1"}


def read(folder: Path, *lines: dict[str, Any] | str) -> list[Subject]:
    path = folder / "tasks.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return read_subjects(path)


def test_a_line_is_a_task_and_its_number_is_the_name_of_one_without(tmp_path: Path) -> None:
    named = TASK | {"task_id": "plus", "probes": [[5], [6]], "replies": ["def f(x): return 0"], "prompt": "Add 1."}
    one, two = read(tmp_path, named, "", TASK)
    assert (one.task, two.task) == ("plus", "line 3")
    assert one.reference == TASK["solution"]
    assert (one.tests.function, one.tests.inputs, one.tests.expected) == ("f", ([1], [2]), (2, 3))
    assert (list(one.probes), list(one.replies)) == ([[5], [6]], ["def f(x): return 0"])
    assert (list(two.probes), list(two.replies)) == ([], [])


def test_a_solution_is_read_as_a_reply_is(tmp_path: Path) -> None:
    (task,) = read(tmp_path, TASK | {"solution": f"So:\n```python\n{TASK['solution']}\n```\n"})
    assert task.reference == TASK["solution"]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"tests": None}, "the task has no 'tests'"),
        ({"function": None}, "the task has no 'function'"),
        ({"solution": None}, "the task has no 'solution'"),
        ({"tests": []}, "are no test"),
        ({"tests": [[1, 2]]}, "arguments must be a list"),
        ({"tests": [[[1], 2, 3]]}, "pairs"),
        ({"tests": [[[float("nan")], 2]]}, "no function can be given [nan]"),
        ({"function": "f x"}, "no Python name"),
        ({"solution": "def f(x: return x"}, "no Python"),
        ({"solution": "def g(x): return x"}, "never names the function f"),
        ({"solution": ["def f(x): return x"]}, "'solution' must hold text"),
        ({"task_id": 7}, "'task_id' must hold text, not 7"),
        ({"probes": [5]}, "'probes' must be a list of lists"),
        ({"probes": [[[[]] * 2, float("inf")]]}, "no function can be given"),
        ({"replies": "def f(x): return x"}, "'replies' must be a list"),
        ({"replies": [None]}, "'replies' must hold text, not None"),
    ],
)
def test_what_cannot_be_measured_is_named_with_file_and_line(
    tmp_path: Path, change: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(UserError) as refused:
        read(tmp_path, TASK, TASK | change)
    (sentence,) = str(refused.value).splitlines()
    assert sentence.startswith(f"{tmp_path / 'tasks.jsonl'}:2: ")
    assert complaint in sentence


def test_all_unusable_lines_are_named_or_counted(tmp_path: Path) -> None:
    with pytest.raises(UserError) as refused:
        read(tmp_path, "no JSON", *[{}] * 5, TASK, "[]")
    *named, rest = str(refused.value).splitlines()
    assert [sentence.split(":")[1] for sentence in named] == ["1", "2", "3", "4", "5"]
    assert "not JSON" in named[0]
    assert rest == "and 2 more lines"


def test_a_file_without_tasks_or_that_is_not_there_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no tasks"):
        read(tmp_path, "", " ")
    with pytest.raises(UserError, match="cannot be read"):
        read_subjects(tmp_path / "none.jsonl")
