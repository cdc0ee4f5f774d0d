"""The report as plain data and as text, and the decision over it."""

from __future__ import annotations

import dataclasses
import json

import pytest

from posttrain.core.errors import ConfigError
from posttrain.verifiers.quality.admission import Thresholds, admissible
from posttrain.verifiers.quality.coverage import Coverage
from posttrain.verifiers.quality.difficulty import Difficulty
from posttrain.verifiers.quality.executions import NotMeasured
from posttrain.verifiers.quality.instrument import Arm
from posttrain.verifiers.quality.mutants import Mutant
from posttrain.verifiers.quality.mutation import Fate, Judged, Mutation
from posttrain.verifiers.quality.repetition import Repetition
from posttrain.verifiers.quality.report import MAX_LISTED, QualityReport

MUTANT = Mutant("comparison", 2, "return x > 3", "return x >= 3", "def f(x): …")


def mutation(killed: int, survived: int = 0, not_measured: int = 0, indistinct: int = 0) -> Mutation:
    fates = {
        Fate.KILLED: killed,
        Fate.SURVIVED: survived,
        Fate.NOT_MEASURED: not_measured,
        Fate.INDISTINCT: indistinct,
    }
    return Mutation(tuple(Judged(MUTANT, fate) for fate, count in fates.items() for _ in range(count)), indistinct)


GOOD = QualityReport(
    task="code/7",
    tier="full",
    tests=("f(1)", "f(2)", "f(3)"),
    num_answers=2,
    repetition=Repetition(5, 2, (), ()),
    coverage=Coverage(10, 10, (), ()),
    mutation=mutation(20),
)


def reasons(**changes: object) -> str:
    return " | ".join(admissible(dataclasses.replace(GOOD, **changes)))  # type: ignore[arg-type]


def test_a_task_with_good_tests_is_admitted() -> None:
    assert admissible(GOOD) == ()


def test_a_task_with_weak_tests_is_not_admitted() -> None:
    assert "mutation score is 0.750 and must be at least 0.800: 5 mutants" in reasons(mutation=mutation(15, 5))
    assert reasons(mutation=mutation(16, 4)) == ""


def test_indistinct_mutants_are_not_held_against_the_tests() -> None:
    assert reasons(mutation=mutation(20, indistinct=20)) == ""


def test_tests_that_killed_nothing_are_not_admitted_though_nothing_survived() -> None:
    assert "mutation score is 0.000" in reasons(mutation=mutation(0, indistinct=5))


def test_tests_that_one_constant_passes_are_not_admitted_whatever_the_score() -> None:
    assert "all 3 tests want the same answer" in reasons(num_answers=1)


def test_missing_coverage_is_a_reason() -> None:
    assert "lines" in reasons(coverage=Coverage(10, 10, (3,), ()))
    assert "branch arms" in reasons(coverage=Coverage(10, 10, (), (Arm(1, "never"), Arm(2, "never"))))


def test_a_flaky_or_failing_reference_is_a_reason() -> None:
    assert "fails f(2)" in reasons(repetition=Repetition(5, 2, (1,), ()))
    assert "from run to run in f(1) and 1 more tests" in reasons(repetition=Repetition(5, 2, (0, 1), (0, 1)))
    assert "did not end well: out of memory" in reasons(repetition=Repetition(5, 2, (), (), ("out of memory",)))


@pytest.mark.parametrize("part", ["repetition", "coverage", "mutation"])
def test_nothing_is_admitted_on_what_was_not_measured(part: str) -> None:
    assert "the sandbox failed" in reasons(**{part: NotMeasured("the sandbox failed")})


def test_a_single_mutant_that_was_not_measured_is_a_reason() -> None:
    assert reasons(mutation=mutation(20, not_measured=1)) == "1 of 21 mutants were not measured"


def test_thresholds_can_be_set_and_must_be_shares() -> None:
    assert admissible(dataclasses.replace(GOOD, mutation=mutation(6, 4)), Thresholds(min_mutation_score=0.5)) == ()
    with pytest.raises(ConfigError, match=r"min_mutation_score is 80"):
        Thresholds(min_mutation_score=80)


def test_a_report_without_tests_is_refused() -> None:
    with pytest.raises(ValueError, match="no tests"):
        dataclasses.replace(GOOD, tests=())


FULL = dataclasses.replace(
    GOOD,
    repetition=Repetition(3, 0, (), (1,), note="hash seeds could not be tried: no verb"),
    coverage=Coverage(3, 4, (2,), (Arm(2, "`x > 3` was false"),)),
    mutation=mutation(15, 9, 1, 2),
    difficulty=Difficulty(8, 1, (8, 0, 3), 0),
)


def test_the_plain_form_is_json_and_spells_out_the_scores() -> None:
    plain = FULL.plain()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["coverage"]["line_share"] == pytest.approx(2 / 3)
    assert plain["mutation"]["score"] == 0.625
    assert plain["mutation"]["survived"][0] == {
        "operator": "comparison",
        "line": 2,
        "before": "return x > 3",
        "after": "return x >= 3",
    }
    assert plain["repetition"]["flaky"] == [1]
    assert plain["difficulty"]["nobody_fails"] == [0]
    assert GOOD.plain()["difficulty"] is None


def test_what_was_not_measured_says_so_in_both_forms() -> None:
    nothing = NotMeasured("the sandbox failed")
    report = dataclasses.replace(GOOD, repetition=nothing, coverage=nothing, mutation=nothing)
    assert report.plain()["mutation"] == {"not_measured": "the sandbox failed"}
    assert report.text().count("not measured: the sandbox failed") == 3


def test_the_text_names_what_the_tests_miss_and_stays_short() -> None:
    text = FULL.text()
    for finding in (
        "code/7: 3 tests want 2 different answers, sandbox full",
        "flaky: f(2)",
        "never ran: line 2",
        "never: line 2: `x > 3` was false",
        "15 of 24 killed, score 0.62",
        "survived: line 2, comparison: return x > 3 → return x >= 3",
        f"… and {9 - MAX_LISTED} more",
        "nobody fails: f(1)",
        "nobody passes: f(2)",
    ):
        assert finding in text
    assert len(text.splitlines()) < 25
