"""A whole measurement, once through the real sandbox."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from posttrain.sandbox.local import LocalSandbox
from posttrain.sandbox.scripted import ScriptedSandbox
from posttrain.verifiers.python_code import HiddenTests
from posttrain.verifiers.quality.admission import admissible
from posttrain.verifiers.quality.coverage import Coverage
from posttrain.verifiers.quality.executions import NotMeasured
from posttrain.verifiers.quality.measure import Subject, measure
from posttrain.verifiers.quality.mutation import Mutation
from posttrain.verifiers.quality.report import QualityReport

SOURCE = "def f(x):\n    if x > 10:\n        return 'big'\n    return 'small'"
STRONG = HiddenTests("f", ([9], [10], [11], [12], [-20]), ("small", "small", "big", "big", "small"))


def measured(sandbox: Any, subject: Subject) -> QualityReport:
    return asyncio.run(measure(sandbox, subject))


def test_a_good_task_is_admitted_and_its_expected_values_stay_outside() -> None:
    report = measured(LocalSandbox(), Subject("code/1", SOURCE, STRONG, replies=[SOURCE, "no"]))
    assert admissible(report) == (), report.text()
    assert isinstance(report.coverage, Coverage)
    assert isinstance(report.mutation, Mutation)
    assert (report.coverage.line_share, report.coverage.branch_share, report.mutation.score) == (1.0, 1.0, 1.0)
    assert report.difficulty is not None
    assert report.difficulty.solved_share == 0.5
    assert report.tier == LocalSandbox().tier


def test_weak_tests_are_not_admitted_and_the_report_says_what_they_miss(here: ScriptedSandbox) -> None:
    report = measured(here, Subject("code/2", SOURCE, HiddenTests("f", ([30], [40]), ("big", "big"))))
    against = " ".join(admissible(report))
    assert "lines" in against
    assert "all 2 tests want the same answer" in against
    assert "branch arms" in against
    assert "mutation score" in against
    assert "never ran: line 4" in report.text()
    assert "if x > 10: → if x >= 10:" in report.text()


def test_a_reference_that_fails_its_tests_is_not_measured_further(here: ScriptedSandbox) -> None:
    report = measured(here, Subject("code/3", SOURCE, HiddenTests("f", ([30],), ("small",))))
    assert isinstance(report.mutation, NotMeasured)
    assert admissible(report) == ("the reference fails f(30)",)
    assert len(here.calls) == 3


def test_a_sandbox_that_is_down_is_no_reason_against_the_tests_but_against_admission() -> None:
    report = measured(ScriptedSandbox(num_faults=1000), Subject("code/4", SOURCE, STRONG))
    (reason,) = admissible(report)
    assert "was not measured" in reason


def test_a_reference_that_is_no_program_is_refused(here: ScriptedSandbox) -> None:
    for source, complaint in (
        ("def f(:", "no Python"),
        ("(" * 10_000, "no Python"),
        ("1+" * 1_500 + "1", "no Python"),
        ("#" * 30_000, "characters"),
    ):
        with pytest.raises(ValueError, match=complaint):
            measured(here, Subject("code/5", source, STRONG))
    assert here.calls == []


def test_zero_tests_cannot_be_measured() -> None:
    with pytest.raises(ValueError, match="no test"):
        Subject("code/6", SOURCE, HiddenTests("f", (), ()))


def test_answers_are_different_where_their_types_are(here: ScriptedSandbox) -> None:
    tests = HiddenTests("f", ([1], [True], [1.0], [1]), (1, True, 1.0, 1))
    assert measured(here, Subject("code/8", "def f(x):\n    return x", tests)).num_answers == 3


def test_long_calls_are_cut_in_the_report(here: ScriptedSandbox) -> None:
    tests = HiddenTests("f", ([list(range(200))],), (200,))
    report = measured(here, Subject("code/7", "def f(xs):\n    return len(xs)", tests))
    assert len(report.tests[0]) < 100
