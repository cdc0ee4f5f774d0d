"""May a task with these tests be learned from? A pure decision over a report (attacks 11, 12 and 16).

A task is never admitted on what was not measured: that is a reason too, to measure again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from posttrain.core.errors import ConfigError
from posttrain.core.types import Json
from posttrain.verifiers.quality.executions import NotMeasured
from posttrain.verifiers.quality.mutation import Fate
from posttrain.verifiers.quality.report import QualityReport


@dataclass(frozen=True)
class Thresholds:
    """Whatever they are, the reference must pass its tests, every time, and no constant answer may."""

    min_mutation_score: float = 0.8
    """Below 1 because some mutants are the same function, which only probes or a person can say."""
    min_line_coverage: float = 0.95
    """Below 1 for guards against inputs that the task rules out."""
    min_branch_coverage: float = 0.9

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0.0 <= value <= 1.0:
                raise ConfigError(f"{name} is {value}; it must be a share between 0 and 1")


DEFAULT_THRESHOLDS = Thresholds()


@dataclass(frozen=True)
class Admission:
    """A report and what it decides; true where the task is admitted."""

    report: QualityReport
    reasons: tuple[str, ...]

    def __bool__(self) -> bool:
        return not self.reasons

    def plain(self) -> dict[str, Json]:
        return {"admitted": bool(self), "reasons": list(self.reasons), **self.report.plain()}


def decide(report: QualityReport, thresholds: Thresholds = DEFAULT_THRESHOLDS) -> Admission:
    return Admission(report, admissible(report, thresholds))


def admissible(report: QualityReport, thresholds: Thresholds = DEFAULT_THRESHOLDS) -> tuple[str, ...]:
    """The reasons against the task, as sentences; empty for a task that is admitted."""
    reasons = tuple(_against_reference(report))
    return reasons or (
        *_against_constants(report),
        *_against_coverage(report, thresholds),
        *_against_mutation(report, thresholds),
    )


def _against_reference(report: QualityReport) -> Iterator[str]:
    repetition = report.repetition
    if isinstance(repetition, NotMeasured):
        yield f"the reference was not measured: {repetition.reason}"
        return
    always = [place for place in repetition.failing if place not in repetition.flaky]
    if always:
        yield f"the reference fails {_named(report, always)}"
    if repetition.flaky:
        yield f"the reference answers differently from run to run in {_named(report, repetition.flaky)}"
    for end in repetition.bad_ends:
        yield f"the reference did not end well: {end}"


def _against_constants(report: QualityReport) -> Iterator[str]:
    """One survivor among many mutants costs little, but this one is the first that a policy finds."""
    if report.num_answers == 1:
        yield f"all {len(report.tests)} tests want the same answer: a program that returns it without looking passes"


def _against_coverage(report: QualityReport, thresholds: Thresholds) -> Iterator[str]:
    coverage = report.coverage
    if isinstance(coverage, NotMeasured):
        yield f"coverage was not measured: {coverage.reason}"
        return
    if coverage.line_share < thresholds.min_line_coverage:
        yield _below("lines", coverage.line_share, thresholds.min_line_coverage)
    if coverage.branch_share < thresholds.min_branch_coverage:
        yield _below("branch arms", coverage.branch_share, thresholds.min_branch_coverage)


def _against_mutation(report: QualityReport, thresholds: Thresholds) -> Iterator[str]:
    mutation = report.mutation
    if isinstance(mutation, NotMeasured):
        yield f"the mutation score was not measured: {mutation.reason}"
        return
    if mutation.count(Fate.NOT_MEASURED):
        yield f"{mutation.count(Fate.NOT_MEASURED)} of {len(mutation.judged)} mutants were not measured"
    if mutation.score < thresholds.min_mutation_score:
        survived = mutation.count(Fate.SURVIVED)
        yield (
            f"the tests' mutation score is {mutation.score:.3f} and must be at least "
            f"{thresholds.min_mutation_score:.3f}: {survived} mutants pass them"
        )


def _below(what: str, share: float, wanted: float) -> str:
    return f"the tests reach {share:.3f} of the reference's {what} and must reach at least {wanted:.3f}"


def _named(report: QualityReport, places: list[int] | tuple[int, ...]) -> str:
    first = report.tests[places[0]]
    return first if len(places) == 1 else f"{first} and {len(places) - 1} more tests"
