"""L23 for slots: whatever breaks around a program, it gets its own honest result or none, and the sandbox goes on."""

from __future__ import annotations

import asyncio
import os
import random
import secrets
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from posttrain.core.sandboxing import OutputStatus, ResultClass, RunResult, SandboxLimits
from posttrain.core.types import Json
from posttrain.sandbox.cgroup import find_parents
from posttrain.sandbox.local import LocalSandbox
from tests.laws.slot_faults import FAULTS, Stage, command_line

_PATIENCE_S = 100.0
_LIMITS = SandboxLimits(wall_s=5.0, memory_mib=96, processes=6, disk_mib=2)
_VALUE, _RAISED, _MISSING = OutputStatus.VALUE, OutputStatus.RAISED, OutputStatus.MISSING
_LONG = list(range(30_000))


@dataclass(frozen=True)
class Seen:
    """What a caller acts upon."""

    result_class: ResultClass
    outputs: tuple[tuple[OutputStatus, Json], ...] = ()
    stdout: str = ""
    exit_code: int | None = 0


@dataclass(frozen=True)
class Program:
    honest: Seen
    source: str = ""
    inputs: tuple[tuple[Json, ...], ...] = ((),)
    argv: tuple[str, ...] = ()
    stdin: str = ""
    limits: SandboxLimits = _LIMITS


def _ends(source: str, result_class: ResultClass, exit_code: int | None = None, **limits: Any) -> Program:
    from dataclasses import replace

    return Program(Seen(result_class, ((_MISSING, None),), exit_code=exit_code), source, limits=replace(_LIMITS, **limits))


def _answers(source: str, *pairs: tuple[Json, tuple[OutputStatus, Json]], stdout: str = "") -> Program:
    outputs = tuple(output for _, output in pairs)
    return Program(Seen(ResultClass.OK, outputs, stdout), source, tuple((given,) for given, _ in pairs))


PROGRAMS = {
    "quick": _answers("def f(x): return x * 2", (21, (_VALUE, 42))),
    "inputs": _answers("def f(x): return x * x", *((n, (_VALUE, n * n)) for n in range(12))),
    "long": _answers("def f(x): return x[::-1]", (_LONG, (_VALUE, _LONG[::-1]))),
    "prints": _answers(
        "def f(x):\n    print('x' * 9999)\n    return x", *((n, (_VALUE, n)) for n in range(9)), stdout=("x" * 9999 + "\n") * 9
    ),
    "sleeps": _answers(
        "import time\ndef f(x):\n    time.sleep(0.02)\n    return x", *((n, (_VALUE, n)) for n in range(3))
    ),
    "raises": _answers("def f(x): return 1 // x", (0, (_RAISED, None)), (1, (_VALUE, 1))),
    "wrong": _answers("def f(x): return x + 1", (1, (_VALUE, 2))),
    "no source": _ends("1 / 0", ResultClass.PROGRAM_ERROR, 1),
    "exits": _ends("import sys\ndef f(): sys.exit(3)", ResultClass.PROGRAM_ERROR, 3),
    "aborts": _ends("import os\ndef f(): os.abort()", ResultClass.SIGNAL),
    "killed": _ends("import os\ndef f(): os.kill(os.getpid(), 9)", ResultClass.SIGNAL),
    "loops": _ends("def f():\n    while True: pass", ResultClass.TIME_LIMIT, wall_s=0.1),
    "floods": _ends("def f():\n    while True: print(end='x' * 999)", ResultClass.OUTPUT_LIMIT),
    "copies": Program(Seen(ResultClass.OK, (), "x" * 200_000), argv=("cat",), stdin="x" * 200_000),
    "fails": Program(
        Seen(ResultClass.PROGRAM_ERROR, (), "so far", 7), argv=("sh", "-c", "cat; sleep 0.01; exit 7"), stdin="so far"
    ),
}


async def see(sandbox: LocalSandbox, program: Program) -> tuple[Seen, RunResult]:
    if program.argv:
        run = await sandbox.run(program.argv, stdin=program.stdin, limits=program.limits)
        return Seen(run.result_class, (), run.stdout, run.exit_code), run
    result = await sandbox.call(program.source, "f", program.inputs, limits=program.limits)
    run = result.run
    outputs = tuple((output.status, output.value) for output in result.outputs)
    stdout = "" if run.result_class is ResultClass.OUTPUT_LIMIT else run.stdout
    return Seen(run.result_class, outputs, stdout, run.exit_code), run


@dataclass
class Tally:
    wrong: list[str] = field(default_factory=list)
    ended: Counter[str] = field(default_factory=Counter)


async def under_fault(stage: Stage, sandbox: LocalSandbox, kind: str, number: int, tally: Tally) -> None:
    draw = random.Random(f"{kind} {number}")
    name = draw.choice(list(PROGRAMS))
    try:
        async with asyncio.timeout(_PATIENCE_S):
            import time; t0=time.time()
            with FAULTS[kind](stage, draw):
                refs=list(stage.refusals)
                seen, run = await see(sandbox, PROGRAMS[name])
            if time.time()-t0>0.9: print("SLOW", kind, number, name, round(time.time()-t0,2), refs, seen.result_class, run.reason[:300])
    except Exception as error:
        tally.wrong.append(f"{kind} {number}: {name} was lost: {error!r}")
        return
    ours = seen.result_class is ResultClass.INFRASTRUCTURE_ERROR
    tally.ended["ours" if ours else "honest"] += 1
    if not ours and seen != PROGRAMS[name].honest:
        tally.wrong.append(f"{kind} {number}: {name} became {str(seen)[:300]}: {run.reason}; {run.stderr[-300:]}")


async def recovers(sandbox: LocalSandbox, name: str, after: Iterable[int], tally: Tally) -> None:
    try:
        async with asyncio.timeout(_PATIENCE_S):
            seen, run = await see(sandbox, PROGRAMS[name])
    except Exception as error:
        tally.wrong.append(f"after {after}: {name} was lost: {error!r}")
        return
    if seen != PROGRAMS[name].honest:
        tally.wrong.append(f"after {after}: {name} became {str(seen)[:300]}: {run.reason}; {run.stderr[-300:]}")


async def throw(stage: Stage, kind: str, num_faults: int, concurrency: int = 2) -> Tally:
    sandbox, tally = LocalSandbox(concurrency=concurrency), Tally()

    def unseen(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        import traceback; traceback.print_exception(context.get("exception"))
        if len(tally.wrong)<30: tally.wrong.append(f"{kind} {number}: {context['message']}: {context.get('exception')!r}")

    asyncio.get_running_loop().set_exception_handler(unseen)
    number = 0
    while stage.hits.total() < num_faults and len(tally.wrong) < 20:
        numbers = range(number, number + concurrency)
        number += concurrency
        await asyncio.gather(*(under_fault(stage, sandbox, kind, n, tally) for n in numbers))
        names = random.Random(number).choices(list(PROGRAMS), k=concurrency)
        await asyncio.gather(*(recovers(sandbox, name, numbers, tally) for name in names))
    await sandbox.close()
    figures = sandbox.figures()
    tally.ended["calls"] = number
    tally.ended["retries"] = figures.retries
    tally.ended["leaked"] = figures.leaked_slots
    return tally


def holdings(mark: str) -> dict[str, list[str]]:
    parents = find_parents()
    folders = {parents.memory, parents.pids} if parents else set()
    return {
        "processes": [p.name for p in Path("/proc").glob("[0-9]*") if mark.encode() in command_line(int(p.name))],
        "descriptors": sorted(f"{p.name} {os.readlink(p)}" for p in Path("/proc/self/fd").iterdir() if p.is_symlink()),
        "groups": [str(group) for folder in folders for group in folder.glob(f"posttrain-{os.getpid()}-*")],
        "mounts": Path("/proc/self/mountinfo").read_text().splitlines(),
    }


@pytest.mark.parametrize("kind", FAULTS)
def test_faults(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    asyncio.run(see_once())
    stage = Stage(monkeypatch, f"mark-{secrets.token_hex(8)}")
    before = holdings(stage.mark)
    tally = asyncio.run(throw(stage, kind, int(os.environ.get("N", "40"))))
    print(kind, stage.hits, tally.ended)
    for line in tally.wrong:
        print("  ", line)
    stage.close_strangers()
    after = holdings(stage.mark)
    for key in before:
        print(key, set(after[key]) - set(before[key]))
    assert tally.wrong == []
    assert before == after


async def see_once() -> None:
    sandbox = LocalSandbox()
    await see(sandbox, PROGRAMS["quick"])
    await sandbox.close()
