"""What was found out about a task's tests, as one record: for programs as plain data, for people as a few lines.

It decides nothing: `admission.py` does.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from posttrain.core.types import Json
from posttrain.verifiers.quality.coverage import Coverage
from posttrain.verifiers.quality.difficulty import Difficulty
from posttrain.verifiers.quality.executions import NotMeasured
from posttrain.verifiers.quality.mutation import Fate, Judged, Mutation
from posttrain.verifiers.quality.repetition import Repetition

MAX_LISTED = 5
"""Of each kind of finding, in the text; the plain data has all of them."""


@dataclass(frozen=True)
class QualityReport:
    """Coverage and mutants are measured only of a reference that passes its tests."""

    task: str
    tier: str
    """Of the sandbox that ran everything."""
    tests: tuple[str, ...]
    """Each test's call, in order; other parts of the report name tests by their position here."""
    num_answers: int
    """How many different answers the tests want: of 1, a program that looks at nothing passes (attack 16)."""
    repetition: Repetition | NotMeasured
    coverage: Coverage | NotMeasured
    mutation: Mutation | NotMeasured
    difficulty: Difficulty | None = None
    """None where no replies were given."""

    def __post_init__(self) -> None:
        if not self.tests:
            raise ValueError(f"the report on task {self.task} has no tests: there is nothing to report on")

    def plain(self) -> dict[str, Json]:
        """Lists, dicts, text and numbers; shares and scores are spelled out."""
        return {
            "task": self.task,
            "tier": self.tier,
            "tests": list(self.tests),
            "num_answers": self.num_answers,
            "repetition": _plain(self.repetition, "passes"),
            "coverage": _plain(self.coverage, "line_share", "branch_share"),
            "mutation": _plain_mutation(self.mutation),
            "difficulty": _plain(self.difficulty, "solved_share", "test_shares", "nobody_fails", "nobody_passes"),
        }

    def text(self) -> str:
        parts = (_say_repetition, _say_coverage, _say_mutation, _say_difficulty)
        lines = [f"{self.task}: {len(self.tests)} tests want {self.num_answers} different answers, sandbox {self.tier}"]
        return "\n".join([*lines, *(f"  {line}" for part in parts for line in part(self))])


def _plain(measured: Repetition | Coverage | Difficulty | NotMeasured | None, *properties: str) -> Json:
    if measured is None:
        return None
    if isinstance(measured, NotMeasured):
        return {"not_measured": measured.reason}
    fields = dataclasses.asdict(measured) | {name: getattr(measured, name) for name in properties}
    return json.loads(json.dumps(fields))


def _plain_mutation(mutation: Mutation | NotMeasured) -> Json:
    if isinstance(mutation, NotMeasured):
        return {"not_measured": mutation.reason}
    listed = {str(fate): [_plain_mutant(one) for one in mutation.of(fate)] for fate in Fate}
    return {"score": mutation.score, "num_probes": mutation.num_probes, **listed}


def _plain_mutant(judged: Judged) -> Mapping[str, Json]:
    mutant = judged.mutant
    fields = {"operator": mutant.operator, "line": mutant.line, "before": mutant.before, "after": mutant.after}
    return fields | ({"reason": judged.reason} if judged.reason else {})


def _say_repetition(report: QualityReport) -> Iterator[str]:
    done = report.repetition
    if isinstance(done, NotMeasured):
        yield f"reference: not measured: {done.reason}"
        return
    verdict = "passes every test" if done.passes else "does not pass"
    yield f"reference: {verdict} in {done.num_runs} runs under {done.num_hash_seeds} other hash seeds"
    yield from ([f"  {done.note}"] if done.note else [])
    yield from _listed("fails", (report.tests[place] for place in done.failing))
    yield from _listed("flaky", (report.tests[place] for place in done.flaky))
    yield from _listed("ended", done.bad_ends)


def _say_coverage(report: QualityReport) -> Iterator[str]:
    done = report.coverage
    if isinstance(done, NotMeasured):
        yield f"coverage: not measured: {done.reason}"
        return
    lines, arms = done.num_lines - len(done.missed_lines), done.num_arms - len(done.missed_arms)
    yield f"coverage: {lines} of {done.num_lines} lines, {arms} of {done.num_arms} arms"
    yield from _listed("never ran", (f"line {line}" for line in done.missed_lines))
    yield from _listed("never", (f"line {arm.line}: {arm.outcome}" for arm in done.missed_arms))


def _say_mutation(report: QualityReport) -> Iterator[str]:
    done = report.mutation
    if isinstance(done, NotMeasured):
        yield f"mutants: not measured: {done.reason}"
        return
    killed, survived = done.count(Fate.KILLED), done.count(Fate.SURVIVED)
    line = f"mutants: {killed} of {killed + survived} killed, score {done.score:.2f}"
    if done.num_probes:
        line += f"; {done.count(Fate.INDISTINCT)} more that {done.num_probes} probes cannot tell from the reference"
    yield line
    yield from _listed("survived", map(_say_mutant, done.of(Fate.SURVIVED)))
    yield from _listed("not measured", (f"{_say_mutant(one)} ({one.reason})" for one in done.of(Fate.NOT_MEASURED)))


def _say_mutant(judged: Judged) -> str:
    mutant = judged.mutant
    return f"line {mutant.line}, {mutant.operator}: {mutant.before} → {mutant.after}"


def _say_difficulty(report: QualityReport) -> Iterator[str]:
    done = report.difficulty
    if done is None:
        return
    solved = f"{done.num_solving} of {done.num_measured} replies solve it"
    yield f"difficulty: {solved}, {done.num_not_measured} not measured"
    yield from _listed("nobody fails", (report.tests[place] for place in done.nobody_fails))
    yield from _listed("nobody passes", (report.tests[place] for place in done.nobody_passes))


def _listed(label: str, findings: Iterable[str]) -> Sequence[str]:
    found = list(findings)
    more = [f"  … and {len(found) - MAX_LISTED} more"] if len(found) > MAX_LISTED else []
    return [*(f"  {label}: {finding}" for finding in found[:MAX_LISTED]), *more]
