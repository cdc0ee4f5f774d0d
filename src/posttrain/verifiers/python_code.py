"""Programs judged by hidden tests: the sandbox runs the function, its answers are compared out here.

Expected values never enter the sandbox, answers come back as plain data and are compared on exact types, and all
tests must pass. What the program causes is incorrect; a failure of the sandbox is no verdict (law L23). It does not
choose a sandbox: one is handed in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from posttrain.core.errors import SandboxError
from posttrain.core.protocols import Sandbox
from posttrain.core.sandboxing import CallOutput, CallResult, OutputStatus, ResultClass, SandboxLimits
from posttrain.core.types import Json, Verdict
from posttrain.verifiers.execution_cache import ExecutionCache
from posttrain.verifiers.final_answer import Refused
from posttrain.verifiers.flags import Flag
from posttrain.verifiers.program_text import read_program

MAX_ANSWER_CHARACTERS = 500


@dataclass(frozen=True)
class HiddenTests:
    """Inputs and what `function` must return for each. Refuses to be empty (law L26)."""

    function: str
    inputs: tuple[list[Json], ...]
    expected: tuple[Json, ...]

    def __post_init__(self) -> None:
        if not self.function.isidentifier():
            raise ValueError(f"the function to test is named {self.function!r}, which is no Python name")
        if not self.inputs or len(self.inputs) != len(self.expected):
            raise ValueError(f"{len(self.inputs)} inputs and {len(self.expected)} expected values are no test")

    @classmethod
    def read(cls, hidden: Mapping[str, Json]) -> HiddenTests:
        """From a task's `{"function": name, "tests": [[arguments, expected], …]}`. Raises ValueError."""
        tests = hidden.get("tests")
        if not isinstance(tests, list) or not all(isinstance(test, list) and len(test) == 2 for test in tests):
            raise ValueError("a task's hidden tests must be a list of [arguments, expected] pairs")
        inputs, expected = tuple(test[0] for test in tests), tuple(test[1] for test in tests)
        if not all(isinstance(arguments, list) for arguments in inputs):
            raise ValueError("a hidden test's arguments must be a list")
        return cls(str(hidden.get("function", "")), inputs, expected)


@dataclass(frozen=True)
class ProgramVerifier:
    """Judges replies against one task's hidden tests."""

    tests: HiddenTests
    sandbox: Sandbox
    limits: SandboxLimits = field(default_factory=SandboxLimits)
    cache: ExecutionCache | None = None
    """Shared by the verifiers of one deterministic domain; None runs every reply."""

    async def verify(self, reply: str) -> Verdict:
        program = read_program(reply, self.tests.function)
        if isinstance(program, Refused):
            return program.verdict()
        try:
            result = await self._call(program)
        except SandboxError as error:
            return Verdict.none(f"the sandbox failed: {error}", isolation_tier=str(self.sandbox.tier))
        return judge(self.tests, result, answer=program[:MAX_ANSWER_CHARACTERS])

    async def _call(self, program: str) -> CallResult:
        function, inputs = self.tests.function, self.tests.inputs
        if self.cache is not None:
            return await self.cache.call(self.sandbox, program, function, inputs, self.limits)
        return await self.sandbox.call(program, function, inputs, limits=self.limits)


def judge(tests: HiddenTests, result: CallResult, answer: str) -> Verdict:
    """A verdict from one execution. Reasons carry no expected value: they may be shown to the policy."""
    run = result.run
    execution = {"answer": answer, "isolation_tier": str(run.tier), "wall_s": run.wall_s}
    if failure := sandbox_failure(result, len(tests.inputs)):
        return Verdict.none(f"the sandbox failed: {failure}", **execution)
    passed = passed_tests(tests, result)
    execution |= {
        "parts": {"tests_passed": sum(passed) / len(passed)},
        "evidence": {"result_class": str(run.result_class), "passed": sum(passed), "tests": len(passed)},
        "flags": _flags(result),
    }
    if run.result_class is not ResultClass.OK:
        return Verdict.incorrect(f"the program failed: {run.reason or run.result_class}", **execution)
    if not all(passed):
        return Verdict.incorrect(f"{sum(passed)} of {len(passed)} hidden tests passed", **execution)
    return Verdict.correct(**execution)


def _flags(result: CallResult) -> tuple[str, ...]:
    statuses = {output.status for output in result.outputs}
    flags = [] if result.run.result_class is ResultClass.OK else [str(result.run.result_class)]
    if OutputStatus.NOT_PLAIN in statuses:
        flags.append(Flag.NOT_PLAIN)
    if not flags and OutputStatus.MISSING in statuses:
        flags.append(Flag.ENDED_EARLY)
    return tuple(flags)


def sandbox_failure(result: CallResult, num_inputs: int) -> str:
    """What the sandbox, and not the program, did wrong in this execution; empty where nothing."""
    if result.run.result_class is ResultClass.INFRASTRUCTURE_ERROR:
        return result.run.reason or "no reason given"
    if len(result.outputs) != num_inputs:
        return f"it answered {len(result.outputs)} of {num_inputs} inputs"
    return ""


def passed_tests(tests: HiddenTests, result: CallResult) -> tuple[bool, ...]:
    """For each test, whether its own answer is right; `result` has an output for each."""
    return tuple(is_right(output, want) for want, output in zip(tests.expected, result.outputs, strict=True))


def is_right(output: CallOutput, expected: Json) -> bool:
    return output.status is OutputStatus.VALUE and same_plain_data(expected, output.value)


def same_plain_data(expected: Json, value: Json) -> bool:
    """Equal values of exactly equal types, all the way down: True is not 1, 1.0 is not 1, a tuple is no list.

    Descends only where `expected` does, so that a hostile value's depth does not matter. NaN equals nothing.
    """
    if type(value) is not type(expected):
        return False
    if isinstance(expected, list | tuple):
        return len(expected) == len(value) and all(map(same_plain_data, expected, value))
    if isinstance(expected, dict):
        return expected.keys() == value.keys() and all(same_plain_data(expected[key], value[key]) for key in expected)
    return bool(expected == value)
