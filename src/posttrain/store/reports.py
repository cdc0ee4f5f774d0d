"""Evaluation reports on disk: `evals/NN-label.json`, in the order in which they were made.

What is read back equals what was written, NaN included (null on disk). It computes no score.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from posttrain.core.errors import StoreError
from posttrain.core.types import EvalReport, Json
from posttrain.store.files import read_json, storing, write_json

_FILE_NAME = re.compile(r"(\d{2,})-(.+)\.json")


def report_path(folder: Path, number: int, label: str) -> Path:
    """Where the report with this number in the run's order lies; 0 is the first."""
    return folder / f"{number:02d}-{label}.json"


def write_report(folder: Path, number: int, report: EvalReport) -> Path:
    """Write or replace a report; returns its path."""
    path = report_path(folder, number, report.label)
    write_json(path, asdict(report))
    return path


def read_report(path: Path) -> EvalReport:
    """Raises `StoreError` where the file is missing, torn or no report."""
    content = read_json(path)
    try:
        content["domains"] = {name: _with_nan(score) for name, score in content["domains"].items()}
        content["mean"] = _with_nan(content["mean"])
        return TypeAdapter(EvalReport).validate_python(content)
    except (KeyError, AttributeError, TypeError, ValidationError) as error:
        raise StoreError(f"{path} is no evaluation report: {error}") from None


def read_reports(folder: Path) -> list[EvalReport]:
    """All of a run's reports, in order; none where there is no folder."""
    numbered = [(int(match[1]), path) for path in folder.glob("*.json") if (match := _FILE_NAME.fullmatch(path.name))]
    return [read_report(path) for _, path in sorted(numbered)]


def remove_reports_after(folder: Path, number: int, stage: str, step: int) -> None:
    """Those made inside a stage after `step` steps of it: the run has gone back to before them."""
    for path in folder.glob(f"{number:02d}-{stage}-*.json"):
        made_after = path.stem.rpartition("-")[2]
        if made_after.isdigit() and int(made_after) > step:
            with storing(path):
                path.unlink()


def _with_nan(score: Mapping[str, Json]) -> dict[str, Json]:
    """`greedy` alone may be absent; every other null stands for a number that was not finite."""
    filled = {name: float("nan") if value is None and name != "greedy" else value for name, value in score.items()}
    filled["ci95"] = tuple(float("nan") if value is None else value for value in score["ci95"])
    return filled
