"""One program on one task's inputs, for the sake of the tests: its answers, or that it was not measured.

A failure of the sandbox is tried again and then said to be one: it is never the program's (law L23), so that it can
neither kill a mutant nor let one survive. A wall-clock limit counts only when it is met every time, since a busy
neighbour can cause it. It does not cache: repetition is the point of some of its callers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from posttrain.core.errors import SandboxError
from posttrain.core.protocols import Sandbox
from posttrain.core.sandboxing import CallResult, ResultClass, SandboxLimits
from posttrain.core.types import Json
from posttrain.verifiers.python_code import HiddenTests, passed_tests, sandbox_failure

ATTEMPTS = 3


@dataclass(frozen=True)
class NotMeasured:
    """In place of a measurement: why there is none."""

    reason: str


async def call(
    sandbox: Sandbox, source: str, function: str, inputs: Sequence[Sequence[Json]], limits: SandboxLimits
) -> CallResult | NotMeasured:
    """As `Sandbox.call`, which raises what is no `SandboxError`; one output for each input."""
    num_timeouts, reason = 0, ""
    for _ in range(ATTEMPTS):
        try:
            result = await sandbox.call(source, function, inputs, limits=limits)
        except SandboxError as error:
            reason = str(error)
            continue
        if failure := sandbox_failure(result, len(inputs)):
            reason = failure
        elif result.run.result_class is ResultClass.TIME_LIMIT:
            num_timeouts += 1
            if num_timeouts == ATTEMPTS:
                return result
        else:
            return result
    return NotMeasured(f"the sandbox failed in {ATTEMPTS - num_timeouts} of {ATTEMPTS} attempts: {reason}")


def passes_all(tests: HiddenTests, result: CallResult) -> bool:
    """What a verifier would call correct: every answer right, and the whole execution ended well."""
    return result.run.result_class is ResultClass.OK and all(passed_tests(tests, result))
