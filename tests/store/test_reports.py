from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest

from posttrain.core.errors import StoreError
from posttrain.core.types import DomainScore, EvalReport, ItemScore
from posttrain.store.reports import read_report, read_reports, write_report

SCORE = DomainScore(0.5, (0.25, 0.75), 2, 4, 0.9, None, 0.1, 5, 1, 12.5, 0.25)
ITEM = ItemScore("words", "ab12", (1.0, 0.0, 0.5), 1.0, ("4", None, "ü"), 1, 42, 2)
REPORT = EvalReport("base", "seedling", 3, "s1", {"words": SCORE, "logic": SCORE}, SCORE, (ITEM, ITEM), 2.5)


def test_a_report_comes_back_equal(tmp_path: Path) -> None:
    assert read_report(write_report(tmp_path, 0, REPORT)) == REPORT


def test_a_score_that_was_not_measured_stays_nan(tmp_path: Path) -> None:
    score = dataclasses.replace(SCORE, best_constant=float("nan"), ci95=(float("nan"), 0.5))
    report = dataclasses.replace(REPORT, domains={"words": score}, mean=score)
    back = read_report(write_report(tmp_path, 0, report)).domains["words"]
    assert math.isnan(back.best_constant)
    assert math.isnan(back.ci95[0])
    assert back.ci95[1] == 0.5
    assert back.greedy is None


def test_reports_come_in_the_order_in_which_they_were_made(tmp_path: Path) -> None:
    labels = ["base", "sft", *(f"rl-{i}" for i in range(100))]
    for number in reversed(range(len(labels))):
        write_report(tmp_path, number, dataclasses.replace(REPORT, label=labels[number]))
    assert [report.label for report in read_reports(tmp_path)] == labels
    assert read_reports(tmp_path / "missing") == []


def test_another_file_is_no_report(tmp_path: Path) -> None:
    path = tmp_path / "00-base.json"
    path.write_text('{"schema_version": 1, "domains": {}}')
    with pytest.raises(StoreError, match="is no evaluation report"):
        read_report(path)
