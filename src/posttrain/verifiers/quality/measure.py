"""All that can be said about a task's tests, in one report, measured through any sandbox.

The reference and its mutants run inside; comparison is out here, on exact types. The reference is parsed in this
process but never run here. Measuring costs some tens of executions: a domain measures before it admits a task, or a
sample of what it generates, and never while a run waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from posttrain.core.protocols import Sandbox
from posttrain.core.sandboxing import SandboxLimits
from posttrain.core.types import Json, Task
from posttrain.verifiers.final_answer import Refused
from posttrain.verifiers.program_text import MAX_PROGRAM_CHARACTERS, read_program
from posttrain.verifiers.python_code import HiddenTests, same_plain_data
from posttrain.verifiers.quality.coverage import measure_coverage
from posttrain.verifiers.quality.difficulty import measure_difficulty
from posttrain.verifiers.quality.executions import NotMeasured
from posttrain.verifiers.quality.instrument import instrument
from posttrain.verifiers.quality.mutation import measure_mutation
from posttrain.verifiers.quality.repetition import Repetition, repeat
from posttrain.verifiers.quality.report import QualityReport

_MAX_CALL_CHARACTERS = 80


@dataclass(frozen=True)
class Subject:
    """What is measured: a task's reference and its tests. Raises ValueError for a reference that is no Python."""

    task: str
    """How the report calls it."""
    reference: str
    tests: HiddenTests
    limits: SandboxLimits = field(default_factory=SandboxLimits)
    """Those under which replies will be judged."""
    probes: Sequence[list[Json]] = ()
    """More inputs than tests need, to set apart mutants that are the same function; none: no mutant is set apart."""
    replies: Sequence[str] = ()
    """Sampled from a policy, for the difficulty."""

    def __post_init__(self) -> None:
        if len(self.reference) > MAX_PROGRAM_CHARACTERS:
            size = f"{len(self.reference)} of at most {MAX_PROGRAM_CHARACTERS} characters"
            raise ValueError(f"the reference of task {self.task} has {size}")
        try:
            compile(self.reference, "reference.py", "exec", dont_inherit=True)
            instrument(self.reference, self.tests.function)  # what compiles may still be nested too deeply to rewrite
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            reason = str(error) or type(error).__name__
            raise ValueError(f"the reference of task {self.task} is no Python: {reason}") from error


def read_reference(reply: str, function: str) -> str:
    """The program of a task's correct reply, as a verifier reads it. Raises ValueError."""
    program = read_program(reply, function)
    if isinstance(program, Refused):
        raise ValueError(f"the solution cannot be a reference: {program.reason}")
    return program


@runtime_checkable
class Measurable(Protocol):
    """A domain that says how its tasks are measured: under its own limits, and with its own probes."""

    def subject(self, task: Task) -> Subject: ...


async def measure(sandbox: Sandbox, subject: Subject, num_orders: int = 3, num_hash_seeds: int = 2) -> QualityReport:
    """A failure of the sandbox is in the report."""
    source, tests, limits = subject.reference, subject.tests, subject.limits
    repetition = await repeat(sandbox, source, tests, limits, num_orders, num_hash_seeds)
    difficulty = await measure_difficulty(sandbox, subject.replies, tests, limits) if subject.replies else None
    refused = _refused(repetition)
    return QualityReport(
        task=subject.task,
        tier=str(sandbox.tier),
        tests=tuple(_call(tests.function, arguments) for arguments in tests.inputs),
        num_answers=_num_different(tests.expected),
        repetition=repetition,
        coverage=refused or await measure_coverage(sandbox, source, tests, limits),
        mutation=refused or await measure_mutation(sandbox, source, tests, limits, subject.probes),
        difficulty=difficulty,
    )


def _refused(repetition: Repetition | NotMeasured) -> NotMeasured | None:
    if isinstance(repetition, NotMeasured):
        return repetition
    return None if repetition.passes else NotMeasured("the reference does not pass its tests every time")


def _num_different(values: Sequence[Json]) -> int:
    different: list[Json] = []
    for value in values:
        if not any(same_plain_data(value, other) for other in different):
            different.append(value)
    return len(different)


def _call(function: str, arguments: list[Json]) -> str:
    text = f"{function}({', '.join(map(repr, arguments))})"
    return text if len(text) <= _MAX_CALL_CHARACTERS else f"{text[:_MAX_CALL_CHARACTERS]}…"
