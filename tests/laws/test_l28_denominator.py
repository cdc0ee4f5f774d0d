"""L28: the denominator is what was scheduled; failures have a column of their own; pass@k counts an episode once."""

from __future__ import annotations

import pytest

from posttrain.core.types import EvalReport, ItemScore
from posttrain.gate.score import score_report
from posttrain.gate.suite import suite_hash


def score(items: list[ItemScore], scheduled: list[str]) -> EvalReport:
    return score_report(
        items,
        label="base",
        model="m",
        version=0,
        suite_id=suite_hash(scheduled),
        best_constant={"a": 0.0},
        wall_s=0.0,
    )


def item(task_id: str, *scores: float, failures: int = 0) -> ItemScore:
    return ItemScore("a", task_id, scores, None, (None,) * len(scores), failures, 0, 0)


def test_an_attempt_that_died_stays_in_the_denominator_and_has_a_column_of_its_own() -> None:
    died = item("t1", 1.0, 0.0, 0.0, 0.0, failures=3)
    report = score([item("t0", 1.0, 1.0, 1.0, 1.0), died], ["t0", "t1"])
    assert report.domains["a"].pass_at_1 == pytest.approx(5 / 8)
    assert report.domains["a"].no_verdict == report.mean.no_verdict == 3
    assert report.domains["a"].n == 2


def test_a_scheduled_task_cannot_leave_the_report() -> None:
    with pytest.raises(ValueError, match="are not the tasks of suite"):
        score([item("t0", 1.0)], ["t0", "t1"])


def test_a_scheduled_attempt_cannot_leave_the_report() -> None:
    with pytest.raises(ValueError, match=r"have \[3, 4\] attempts"):
        score([item("t0", 1.0, 1.0, 1.0, 1.0), item("t1", 0.0, 0.0, 1.0)], ["t0", "t1"])


def test_a_task_cannot_be_scored_twice() -> None:
    with pytest.raises(ValueError, match="are not the tasks of suite"):
        score([item("t0", 1.0), item("t0", 1.0)], ["t0"])


def test_pass_at_k_counts_a_task_once_however_often_it_was_solved() -> None:
    items = [item("t0", 1.0, 1.0, 1.0, 1.0), item("t1", 0.0, 1.0, 0.0, 0.0), item("t2", 0.0, 0.0, 0.0, 0.0)]
    assert score(items, ["t0", "t1", "t2"]).domains["a"].pass_at_k == pytest.approx(2 / 3)
