"""Tasks of a JSONL file, one a line, as they are measured:

    {"function": "f", "tests": [[[argument, …], expected], …], "solution": "def f(…): …"}

and, where there are any, `task_id` (a text; the line's number if there is none), `probes` (more lists of arguments) and
`replies` (texts sampled from a policy). Other keys are not looked at. Nothing is run here: whether a solution passes
its tests is what is measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from posttrain.core.errors import UserError
from posttrain.core.types import Json
from posttrain.sandbox.plain import NotPlainError, encode
from posttrain.store.json_lines import UnusableRowError, json_object, lines, short
from posttrain.verifiers.python_code import HiddenTests
from posttrain.verifiers.quality.measure import Subject, read_reference

SUFFIX = ".jsonl"
_MAX_NAMED = 5
"""Unusable lines in the sentence about a file; the others are counted."""


def read_subjects(path: Path) -> list[Subject]:
    """Raises `UserError` that names every line which cannot be used: a file is measured whole or not at all."""
    subjects, unusable = list[Subject](), list[str]()
    for place, line in lines(path):
        try:
            subjects.append(_subject(json_object(line), place))
        except ValueError as error:
            unusable.append(f"{place}: {error}")
    if unusable:
        more = [f"and {len(unusable) - _MAX_NAMED} more lines"] if len(unusable) > _MAX_NAMED else []
        raise UserError("\n".join([*unusable[:_MAX_NAMED], *more]))
    if not subjects:
        raise UserError(f"{path} has no tasks")
    return subjects


def _subject(row: Mapping[str, Json], place: str) -> Subject:
    for key in ("function", "tests", "solution"):
        if row.get(key) is None:
            raise UnusableRowError(f"the task has no {key!r}")
    tests, probes = HiddenTests.read(row), _list(row, "probes")
    if not all(isinstance(probe, list) for probe in probes):
        raise UnusableRowError("'probes' must be a list of lists of arguments")
    for arguments in (*tests.inputs, *probes):
        _check_plain(arguments)
    return Subject(
        task=_text(row.get("task_id") or f"line {place.rpartition(':')[2]}", "task_id"),
        reference=read_reference(_text(row["solution"], "solution"), tests.function),
        tests=tests,
        probes=probes,
        replies=[_text(reply, "replies") for reply in _list(row, "replies")],
    )


def _check_plain(arguments: list[Json]) -> None:
    """JSON has more than may enter a sandbox: it can be nested without end, and Python reads NaN."""
    try:
        encode(arguments)
    except NotPlainError as error:
        raise UnusableRowError(f"no function can be given {short(arguments)}: {error}") from None


def _list(row: Mapping[str, Json], key: str) -> list[Json]:
    found = row.get(key) or []
    if not isinstance(found, list):
        raise UnusableRowError(f"{key!r} must be a list, not {short(found)}")
    return found


def _text(value: Json, key: str) -> str:
    if not isinstance(value, str):
        raise UnusableRowError(f"{key!r} must hold text, not {short(value)}")
    return value
