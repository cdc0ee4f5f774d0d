"""What an honest program may expect of `call` and `run` of any sandbox: values, text, endings, limits, figures.

One execution for each expectation, judged on exact types outside. Nothing hostile is in here (`attacks/` has that),
and no expectation depends on how fast the machine is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass

from posttrain.core.errors import PosttrainError
from posttrain.core.protocols import Sandbox
from posttrain.core.sandboxing import OutputStatus, ResultClass, SandboxLimits
from posttrain.sandbox.honest_programs import BURN, CALLS, LIMITS, RUNS, VALUES, HonestCall, HonestRun

_NUM_QUEUED, _QUEUED_SLEEP_S = 6, 0.5
_QUEUED_LIMITS = SandboxLimits(wall_s=_NUM_QUEUED * _QUEUED_SLEEP_S)
_BURNT_CPU_S, _HELD_MIB = 0.1, 40


@dataclass(frozen=True)
class Conformity:
    """True where the expectation is met."""

    name: str
    holds: bool
    reason: str
    """A sentence; empty where it is met."""

    def __bool__(self) -> bool:
        return self.holds


async def check_conformance(sandbox: Sandbox) -> list[Conformity]:
    """Every expectation, in order; an error that the sandbox raises is the reason why its expectation is not met."""
    found = [await _tried("plain values cross unchanged", _values(sandbox))]
    found += [await _tried(honest.name, _call(sandbox, honest)) for honest in CALLS]
    found += [await _tried(honest.name, _run(sandbox, honest)) for honest in RUNS]
    found.append(await _tried("wall, CPU and memory are plausible", _figures(sandbox)))
    found.append(await _tried("waiting for a slot is not charged", _queue(sandbox)))
    return found


def exact(left: object, right: object) -> bool:
    """Equal, and of the same types all the way down."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(exact(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(exact, left, right))
    return repr(left) == repr(right)  # 0.0 is not -0.0


async def _tried(name: str, expectation: Awaitable[str]) -> Conformity:
    try:
        reason = await expectation
    except PosttrainError as error:
        reason = f"the sandbox refused it: {error}"
    return Conformity(name, not reason, reason)


async def _values(sandbox: Sandbox) -> str:
    result = await sandbox.call("def same(x): return x", "same", [[value] for value in VALUES], limits=LIMITS)
    for value, output in zip(VALUES, result.outputs, strict=True):
        if output.status is not OutputStatus.VALUE or not exact(output.value, value):
            return f"{value!r:.80} came back as {output.status} {output.value!r:.80}"
    return ""


async def _call(sandbox: Sandbox, honest: HonestCall) -> str:
    result = await sandbox.call(honest.source, "f", honest.inputs, limits=honest.limits)
    if result.run.result_class is not honest.ends:
        return f"it ended as {result.run.result_class}, not as {honest.ends}: {result.run.reason}"
    got = [(output.status, output.value) for output in result.outputs]
    if len(got) != len(honest.outputs):
        return f"it gave {len(got)} answers to {len(honest.outputs)} inputs"
    same = [
        status is wanted and exact(value, right)
        for (status, value), (wanted, right) in zip(got, honest.outputs, strict=True)
    ]
    if not all(same):
        return f"it answered {got!r:.200}, not {honest.outputs!r:.200}"
    return ""


async def _run(sandbox: Sandbox, honest: HonestRun) -> str:
    run = await sandbox.run(honest.argv, files=honest.files, stdin=honest.stdin, limits=honest.limits)
    if run.result_class is not honest.ends:
        return f"it ended as {run.result_class}, not as {honest.ends}: {run.reason} {run.stderr[-200:]}"
    if (run.stdout, run.exit_code) != (honest.stdout, honest.exit_code):
        return f"it gave {run.stdout!r:.200} and exit code {run.exit_code}"
    if honest.stderr not in run.stderr:
        return f"its errors were {run.stderr!r:.200}"
    return "its output is marked as cut and is whole" if run.truncated else ""


async def _figures(sandbox: Sandbox) -> str:
    run = (await sandbox.call(BURN, "f", [[_BURNT_CPU_S, _HELD_MIB]], limits=LIMITS)).run
    if run.result_class is not ResultClass.OK:
        return f"it ended as {run.result_class}: {run.reason}"
    if run.cpu_s < _BURNT_CPU_S:
        return f"{run.cpu_s} s of CPU are reported, and {_BURNT_CPU_S} s were used"
    if run.wall_s < _BURNT_CPU_S:
        return f"{run.wall_s} s are reported, and more than {_BURNT_CPU_S} s went by"
    if not _HELD_MIB <= run.peak_memory_mib <= LIMITS.memory_mib:
        return f"a peak of {run.peak_memory_mib} MiB is reported, and {_HELD_MIB} MiB were held"
    return ""


async def _queue(sandbox: Sandbox) -> str:
    """All together sleep for as long as one of them may take, so that the last in a queue of one would be late."""
    source = f"import time\ndef f(): time.sleep({_QUEUED_SLEEP_S})"
    calls = [sandbox.call(source, "f", [[]], limits=_QUEUED_LIMITS) for _ in range(_NUM_QUEUED)]
    classes = [result.run.result_class for result in await asyncio.gather(*calls)]
    return "" if set(classes) == {ResultClass.OK} else f"{_NUM_QUEUED} together ended as {', '.join(classes)}"
