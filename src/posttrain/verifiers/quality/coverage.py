"""Line and branch coverage of a reference under its own tests, measured inside a sandbox.

What never ran cannot be wrong in the tests' eyes: a missed arm is a question that nobody asks. Coverage says nothing
of whether answers are looked at; that is what mutants are for.
"""

from __future__ import annotations

from dataclasses import dataclass

from posttrain.core.protocols import Sandbox
from posttrain.core.sandboxing import CallOutput, OutputStatus, SandboxLimits
from posttrain.verifiers.python_code import HiddenTests, same_plain_data
from posttrain.verifiers.quality.executions import NotMeasured, call
from posttrain.verifiers.quality.instrument import MEASURED, Arm, Instrumented, instrument


@dataclass(frozen=True)
class Coverage:
    num_lines: int
    """Lines on which a statement starts."""
    num_arms: int
    missed_lines: tuple[int, ...]
    missed_arms: tuple[Arm, ...]

    @property
    def line_share(self) -> float:
        return 1.0 - len(self.missed_lines) / self.num_lines

    @property
    def branch_share(self) -> float:
        """1 for a program that decides nothing."""
        return 1.0 - len(self.missed_arms) / self.num_arms if self.num_arms else 1.0


async def measure_coverage(
    sandbox: Sandbox, source: str, tests: HiddenTests, limits: SandboxLimits
) -> Coverage | NotMeasured:
    """Of `source`, which must pass `tests`. Raises `SyntaxError` for what is no Python."""
    copy = instrument(source, tests.function)
    result = await call(sandbox, copy.source, MEASURED, tests.inputs, limits)
    if isinstance(result, NotMeasured):
        return result
    notes: set[int] = set()
    for position, (expected, output) in enumerate(zip(tests.expected, result.outputs, strict=True)):
        answered = _read(output)
        if answered is None or not same_plain_data(expected, answered[0]):
            return NotMeasured(f"the copy that records its coverage answers test {position} in another way")
        notes |= answered[1]
    return _coverage(copy, notes)


def _read(output: CallOutput) -> tuple[object, set[int]] | None:
    match output.value:
        case [answer, list(notes)] if output.status is OutputStatus.VALUE:
            return answer, {note for note in notes if type(note) is int}
    return None


def _coverage(copy: Instrumented, notes: set[int]) -> Coverage:
    lines = set(copy.lines.values())
    ran = {line for note, line in copy.lines.items() if note in notes}
    missed_arms = tuple(arm for note, arm in copy.arms.items() if note not in notes)
    return Coverage(len(lines), len(copy.arms), tuple(sorted(lines - ran)), missed_arms)
