"""The mutation score of a task's tests: the share of its reference's mutants that fail them.

A mutant that fails a test, raises or runs out of a limit is killed. One that the sandbox could not run is neither
killed nor alive. Some mutants are the same function in other words, which no program can decide; where the caller has
probes (many inputs, of which the tests need only some), a survivor that answers all of them as the reference does is
set apart and not held against the tests. Scores over mutants: DeMillo, Lipton and Sayward, 1978.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Sequence
from dataclasses import dataclass

from posttrain.core.protocols import Sandbox
from posttrain.core.sandboxing import OutputStatus, SandboxLimits
from posttrain.core.types import Json
from posttrain.verifiers.python_code import HiddenTests, same_plain_data
from posttrain.verifiers.quality.executions import NotMeasured, call, passes_all
from posttrain.verifiers.quality.mutants import Mutant, mutants


class Fate(enum.StrEnum):
    KILLED = "killed"
    SURVIVED = "survived"
    INDISTINCT = "indistinct"
    """Passes the tests and answers every probe as the reference does."""
    NOT_MEASURED = "not_measured"


@dataclass(frozen=True)
class Judged:
    """One mutant and what became of it."""

    mutant: Mutant
    fate: Fate
    reason: str = ""
    """Why it was not measured."""


@dataclass(frozen=True)
class Mutation:
    judged: tuple[Judged, ...]
    num_probes: int = 0

    def count(self, fate: Fate) -> int:
        return sum(one.fate is fate for one in self.judged)

    def of(self, fate: Fate) -> tuple[Judged, ...]:
        return tuple(one for one in self.judged if one.fate is fate)

    @property
    def score(self) -> float:
        """Killed among killed and survived; 0 where there is neither, since nothing was then shown."""
        killed, survived = self.count(Fate.KILLED), self.count(Fate.SURVIVED)
        return killed / (killed + survived) if killed else 0.0


async def measure_mutation(
    sandbox: Sandbox, source: str, tests: HiddenTests, limits: SandboxLimits, probes: Sequence[list[Json]] = ()
) -> Mutation | NotMeasured:
    """Of `source`, which must pass `tests`. Raises `SyntaxError` for what is no Python."""
    judge = _Judge(sandbox, tests, limits)
    if probes:
        known = await _answers(sandbox, source, tests.function, probes, limits)
        if isinstance(known, NotMeasured):
            return known
        judge = _Judge(sandbox, tests, limits, known)
    judged = await asyncio.gather(*(judge.fate(one) for one in mutants(source, [_most_common(tests.expected)])))
    return Mutation(tuple(judged), len(judge.probes.inputs) if judge.probes else 0)


@dataclass(frozen=True)
class _Judge:
    sandbox: Sandbox
    tests: HiddenTests
    limits: SandboxLimits
    probes: HiddenTests | None = None

    async def fate(self, mutant: Mutant) -> Judged:
        on_tests = await self._passes(mutant, self.tests)
        if isinstance(on_tests, NotMeasured):
            return Judged(mutant, Fate.NOT_MEASURED, on_tests.reason)
        if not on_tests:
            return Judged(mutant, Fate.KILLED)
        if self.probes is None:
            return Judged(mutant, Fate.SURVIVED)
        on_probes = await self._passes(mutant, self.probes)
        if isinstance(on_probes, NotMeasured):
            return Judged(mutant, Fate.NOT_MEASURED, on_probes.reason)
        return Judged(mutant, Fate.INDISTINCT if on_probes else Fate.SURVIVED)

    async def _passes(self, mutant: Mutant, tests: HiddenTests) -> bool | NotMeasured:
        result = await call(self.sandbox, mutant.source, tests.function, tests.inputs, self.limits)
        return result if isinstance(result, NotMeasured) else passes_all(tests, result)


async def _answers(
    sandbox: Sandbox, source: str, function: str, probes: Sequence[list[Json]], limits: SandboxLimits
) -> HiddenTests | NotMeasured:
    """The probes with the reference's own answers; those that it does not answer are left out."""
    result = await call(sandbox, source, function, probes, limits)
    if isinstance(result, NotMeasured):
        return result
    known = [
        (probe, output.value)
        for probe, output in zip(probes, result.outputs, strict=True)
        if output.status is OutputStatus.VALUE
    ]
    if not known:
        return NotMeasured(f"the reference answers none of the {len(probes)} probes")
    return HiddenTests(function, tuple(probe for probe, _ in known), tuple(value for _, value in known))


def _most_common(values: Sequence[Json]) -> Json:
    """The best guess of a program that does not look at what it is asked."""
    return max(values, key=lambda one: sum(same_plain_data(one, other) for other in values))
