"""L23 for slots: whatever breaks around a program, it gets its own honest result or none, and the sandbox goes on."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
import secrets
import signal
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tests.laws.slot_faults import FAULTS, Refusal, Stage, command_line
from tests.own_children import own_children

from posttrain.core.sandboxing import OutputStatus, ResultClass, RunResult, SandboxLimits
from posttrain.core.types import Json
from posttrain.sandbox import local
from posttrain.sandbox.bubblewrap import Host
from posttrain.sandbox.cgroup import find_parents
from posttrain.sandbox.local import LocalSandbox
from posttrain.sandbox.probe import slot_isolation

_PATIENCE_S = 100.0
_LIMITS = SandboxLimits(wall_s=5.0, memory_mib=96, processes=6, disk_mib=2)
_VALUE, _RAISED, _MISSING = OutputStatus.VALUE, OutputStatus.RAISED, OutputStatus.MISSING
_LONG = list(range(15_000))
_MANY_LINES = ("x" * 9999 + "\n") * 9
_OURS = ResultClass.INFRASTRUCTURE_ERROR


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


def _answers(source: str, *pairs: tuple[Json, tuple[OutputStatus, Json]], stdout: str = "") -> Program:
    outputs = tuple(output for _, output in pairs)
    return Program(Seen(ResultClass.OK, outputs, stdout), source, tuple((given,) for given, _ in pairs))


def _ends(source: str, result_class: ResultClass, exit_code: int | None = None, **limits: Any) -> Program:
    honest = Seen(result_class, ((_MISSING, None),), exit_code=exit_code)
    return Program(honest, source, limits=replace(_LIMITS, **limits))


def _runs(argv: tuple[str, ...], stdin: str, stdout: str, exit_code: int) -> Program:
    result_class = ResultClass.PROGRAM_ERROR if exit_code else ResultClass.OK
    return Program(Seen(result_class, (), stdout, exit_code), argv=argv, stdin=stdin)


PROGRAMS = {
    "quick": _answers("def f(x): return x * 2", (21, (_VALUE, 42))),
    "inputs": _answers("def f(x): return x * x", *((n, (_VALUE, n * n)) for n in range(12))),
    "long": _answers("def f(x): return x[::-1]", ([], (_VALUE, [])), (_LONG, (_VALUE, _LONG[::-1]))),
    "prints": _answers(
        "def f(x):\n    print('x' * 9999)\n    return x", *((n, (_VALUE, n)) for n in range(9)), stdout=_MANY_LINES
    ),
    "sleeps": _answers(
        "import time\ndef f(x):\n    time.sleep(0.02)\n    return x", *((n, (_VALUE, n)) for n in range(3))
    ),
    "raises": _answers("def f(x): return 1 // x", (0, (_RAISED, None)), (1, (_VALUE, 1))),
    "no source": _ends("1 / 0", ResultClass.PROGRAM_ERROR, 1),
    "exits": _ends("import sys\ndef f(): sys.exit(3)", ResultClass.PROGRAM_ERROR, 3),
    "aborts": _ends("import os\ndef f(): os.abort()", ResultClass.SIGNAL),
    "ends itself": _ends("import os\ndef f(): os.kill(os.getpid(), 9)", ResultClass.SIGNAL),
    "loops": _ends("def f():\n    while True: pass", ResultClass.TIME_LIMIT, wall_s=0.1),
    "floods": _ends("def f():\n    while True: print(end='x' * 999)", ResultClass.OUTPUT_LIMIT),
    "copies": _runs(("cat",), "x" * 200_000, "x" * 200_000, 0),
    "fails": _runs(("sh", "-c", "cat; sleep 0.01; exit 7"), "so far", "so far", 7),
}


async def see(sandbox: LocalSandbox, program: Program) -> tuple[Seen, RunResult]:
    """Raises `TimeoutError` where nothing comes back."""
    async with asyncio.timeout(_PATIENCE_S):
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
    """What became of the executions of one sandbox, and what should not have."""

    wrong: list[str] = field(default_factory=list)
    ended: Counter[ResultClass] = field(default_factory=Counter)
    num_ours: int = 0
    num_retries: int = 0

    async def watch(self, sandbox: LocalSandbox, name: str, story: str, *, may_be_ours: bool) -> None:
        """`name` must end as it always does or, where it `may_be_ours`, in our error."""
        try:
            seen, run = await see(sandbox, PROGRAMS[name])
        except Exception as error:
            self.wrong.append(f"{story}: {name} was lost: {error!r}")
            return
        self.ended[seen.result_class] += 1
        if seen != PROGRAMS[name].honest and not (may_be_ours and seen.result_class is _OURS):
            self.wrong.append(f"{story}: {name} became {str(seen)[:300]}: {run.reason} {run.stderr[-300:]}")


async def throw(stage: Stage, kind: str, num_faults: int) -> Tally:
    """Faults are numbered, and `kind` and number say what each does; after each round the sandbox must be well."""
    # A number that others close is taken by what opens next: one execution at a time, and that is we.
    concurrency = 1 if kind == "descriptor cut" else 2
    sandbox, tally, number = LocalSandbox(concurrency=concurrency), Tally(), 0
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: tally.wrong.append(f"{kind} {number}: {context['message']} {context.get('exception')!r}")
    )

    async def under_fault(number: int) -> None:
        draw = random.Random(f"{kind} {number}")
        name = draw.choice(list(PROGRAMS))
        with FAULTS[kind](stage, draw):
            await tally.watch(sandbox, name, f"{kind} {number}", may_be_ours=True)

    while stage.hits.total() < num_faults and len(tally.wrong) < 20:
        names = random.Random(number).choices(list(PROGRAMS), k=concurrency)
        await asyncio.gather(*(under_fault(number + lane) for lane in range(concurrency)))
        tally.num_ours = tally.ended[_OURS]
        after = f"after {kind} {number}"
        await asyncio.gather(*(tally.watch(sandbox, name, after, may_be_ours=False) for name in names))
        number += concurrency
    await sandbox.close()
    tally.num_retries = sandbox.figures().retries
    assert (sandbox.figures().slots_live, sandbox.figures().leaked_slots) == (0, 0)
    return tally


def holdings(mark: str) -> dict[str, list[str]]:
    """What a process that leaks has more of, and which processes carry the mark."""
    parents = find_parents()
    folders = {parents.memory, parents.pids} if parents else set()
    pids = [path.name for path in Path("/proc").glob("[0-9]*")]
    return {
        "children": [str(pid) for pid in own_children()],
        "processes": [pid for pid in pids if mark.encode() in command_line(int(pid))],
        "descriptors": sorted(
            f"{fd.name} {fd.readlink()}" for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink()
        ),
        "groups": [str(group) for folder in folders for group in folder.glob(f"posttrain-{os.getpid()}-*")],
        "mounts": Path("/proc/self/mountinfo").read_text().splitlines(),
    }


@contextlib.contextmanager
def nothing_is_left(stage: Stage) -> Iterator[None]:
    before = holdings(stage.mark)
    yield
    stage.close_strangers()
    assert holdings(stage.mark) == before


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    async def once() -> None:
        sandbox = LocalSandbox()
        await see(sandbox, PROGRAMS["quick"])
        await sandbox.close()

    asyncio.run(once())  # what is found and imported once is no leak
    return Stage(monkeypatch, f"mark-{secrets.token_hex(8)}")


@pytest.mark.parametrize("num_faults", [35, pytest.param(275, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", FAULTS)
def test_no_fault_is_the_programs_and_all_are_survived(stage: Stage, kind: str, num_faults: int) -> None:
    if kind == "control group lost" and not slot_isolation().cgroup:
        pytest.skip("no control groups here")
    with nothing_is_left(stage):
        tally = asyncio.run(throw(stage, kind, num_faults))
        assert tally.wrong == []
    # Else nothing was tried.
    assert stage.hits["while"] >= num_faults / 5
    assert tally.num_retries >= num_faults / 4
    assert tally.ended[ResultClass.OK] > tally.ended[ResultClass.PROGRAM_ERROR] > 0
    assert tally.num_ours > 0 or kind in ("server killed", "descriptor cut")


# ── one fault at a time, at its worst moment ──────────────────────────────────────────────────────────────────────


def _shut(stage: Stage) -> None:
    stage.slots[0].control.shutdown(socket.SHUT_WR)


def _lose_pidfds(stage: Stage) -> None:
    tree = stage.slots[0]._tree
    assert tree is not None
    os.close(tree.first)
    os.close(tree.outer)


def _lose_poll(stage: Stage) -> None:
    poll = stage.pipes[0]._poll
    assert poll is not None
    os.close(poll.fileno())


def _lose_diary_and_server(stage: Stage) -> None:
    os.close(stage.slots[0]._diary)
    signal.pidfd_send_signal(stage.slots[0].server, signal.SIGKILL)


def _lose_counter(stage: Stage) -> None:
    group = stage.slots[0]._cgroup
    if group:
        os.close(group._events)


WORST = {strike.__name__: strike for strike in (_shut, _lose_pidfds, _lose_poll, _lose_diary_and_server, _lose_counter)}


@pytest.mark.parametrize("strike", WORST.values(), ids=WORST)
def test_program_that_runs_meanwhile_is_not_blamed(stage: Stage, strike: Callable[[Stage], None]) -> None:
    """What was said to the server cannot be taken back: ended by it, the program would seem to have ended itself."""
    program = _answers("import time\ndef f(x):\n    print()\n    time.sleep(x)", (0.6, (_VALUE, None)), stdout="\n")
    slow = replace(program, limits=replace(_LIMITS, wall_s=2.0))

    async def scenario() -> None:
        sandbox = LocalSandbox(concurrency=1)
        running = asyncio.create_task(see(sandbox, slow))
        while not (stage.pipes and stage.pipes[0]._takers):
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.2)
        strike(stage)
        seen, run = await running
        assert seen == slow.honest, run
        await sandbox.close()
        assert sandbox.figures().leaked_slots == 0

    with nothing_is_left(stage):
        asyncio.run(scenario())


def test_slot_whose_control_group_is_gone_is_given_up(stage: Stage) -> None:
    if not slot_isolation().cgroup:
        pytest.skip("no control groups here")

    async def scenario() -> None:
        sandbox = LocalSandbox(concurrency=1)
        assert (await see(sandbox, PROGRAMS["quick"]))[0] == PROGRAMS["quick"].honest
        slot = stage.slots[0]
        group = slot._cgroup
        assert group is not None
        assert slot._tree is not None
        (group._memory.parent / "cgroup.procs").write_text(str(slot._tree.first_pid))
        group._memory.rmdir()
        assert (await see(sandbox, PROGRAMS["quick"]))[0] == PROGRAMS["quick"].honest
        assert sandbox.figures().retries == 1
        await sandbox.close()

    with nothing_is_left(stage):
        asyncio.run(scenario())


def test_poll_that_takes_no_more_descriptors_is_ours(stage: Stage) -> None:
    """In the middle of an execution, when an input is longer than its pipe."""

    async def scenario() -> None:
        sandbox = LocalSandbox(concurrency=1)
        stage.refusals.append(Refusal("watch", errno.ENOSPC, num_allowed=5))
        seen, run = await see(sandbox, PROGRAMS["long"])
        assert seen.result_class is _OURS
        assert "No space left" in run.reason
        stage.refusals.clear()
        assert (await see(sandbox, PROGRAMS["long"]))[0] == PROGRAMS["long"].honest
        await sandbox.close()

    with nothing_is_left(stage):
        asyncio.run(scenario())


def test_group_that_cannot_be_removed_yet_costs_no_descriptor(stage: Stage) -> None:
    if not slot_isolation().cgroup:
        pytest.skip("no control groups here")

    async def scenario() -> None:
        sandbox = LocalSandbox(concurrency=1)
        await see(sandbox, PROGRAMS["quick"])
        stage.slots[0].kill()
        stage.refusals.append(Refusal("remove group", errno.EBUSY))
        await see(sandbox, PROGRAMS["quick"])
        stage.refusals.clear()
        assert (await see(sandbox, PROGRAMS["quick"]))[0] == PROGRAMS["quick"].honest
        await sandbox.close()

    with nothing_is_left(stage):
        asyncio.run(scenario())


# Ends as bubblewrap does that somebody kills, whose child waits to be told to go on.
HALF_STARTED = """#!/bin/sh
(while :; do read -r line; done < /dev/zero) &
kill -KILL $$
"""


def test_bubblewrap_that_is_ended_during_its_setup_leaves_no_child(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bwrap = tmp_path / "bwrap"
    bwrap.write_text(HALF_STARTED)
    bwrap.chmod(0o755)
    isolation = slot_isolation()
    assert isinstance(isolation.host, Host)
    broken = replace(isolation, host=replace(isolation.host, bwrap=bwrap))

    async def scenario() -> None:
        sandbox = LocalSandbox(concurrency=1)
        with monkeypatch.context() as patch:
            patch.setattr(local, "slot_isolation", lambda: broken)
            assert (await see(sandbox, PROGRAMS["quick"]))[0].result_class is _OURS
        assert (await see(sandbox, PROGRAMS["quick"]))[0] == PROGRAMS["quick"].honest
        await sandbox.close()

    with nothing_is_left(stage):
        asyncio.run(scenario())
