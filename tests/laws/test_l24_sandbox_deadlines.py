"""L24, the sandbox's half: time limits work everywhere, end the whole process tree, and start when the work starts."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.own_children import own_children

from posttrain.core.sandboxing import ResultClass, RunResult, SandboxLimits
from posttrain.sandbox.local import LocalSandbox
from posttrain.sandbox.per_execution import BubblewrapSandbox

Kinds = type[LocalSandbox] | type[BubblewrapSandbox]
KINDS: list[Kinds] = [LocalSandbox, BubblewrapSandbox]
each_kind = pytest.mark.parametrize("kind", KINDS)
LIMITS = SandboxLimits(wall_s=0.4, cpu_s=30.0, processes=8)
# A shell with two daemons, one in a session of its own, and a child that holds the output open.
TREE = "(setsid sleep {mark} &) ; (sleep {mark} > /dev/null 2>&1 &) ; sleep {mark} & trap '' TERM INT; sleep {mark}"
_marks = iter(range(70_000_000 + os.getpid() * 100, 2**31))


def tree() -> tuple[list[str], str]:
    """A program that outlives every limit, and the mark by which its processes are known."""
    mark = str(next(_marks))
    return ["sh", "-c", TREE.format(mark=mark)], mark


def alive(mark: str) -> list[str]:
    """Command lines of this machine's processes that carry the mark."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if mark in line:
            found.append(line)
    return found


async def run_tree(kind: Kinds, argv: list[str]) -> RunResult:
    return await kind().run(argv, limits=LIMITS)


def in_main_thread(kind: Kinds, argv: list[str]) -> RunResult:
    return asyncio.run(run_tree(kind, argv))


def in_worker_thread(kind: Kinds, argv: list[str]) -> RunResult:
    results: list[RunResult] = []
    thread = threading.Thread(target=lambda: results.append(asyncio.run(run_tree(kind, argv))))
    thread.start()
    thread.join()
    return results[0]


def in_busy_event_loop(kind: Kinds, argv: list[str]) -> RunResult:
    async def busy() -> RunResult:
        async def tick() -> None:
            while True:
                await asyncio.sleep(0)

        ticking = asyncio.create_task(tick())
        result = await run_tree(kind, argv)
        ticking.cancel()
        return result

    return asyncio.run(busy())


@each_kind
@pytest.mark.parametrize("place", [in_main_thread, in_worker_thread, in_busy_event_loop])
def test_time_limit_ends_the_whole_tree_wherever_it_is_set(
    kind: Kinds, place: Callable[[Kinds, list[str]], RunResult]
) -> None:
    argv, mark = tree()
    result = place(kind, argv)
    assert result.result_class is ResultClass.TIME_LIMIT
    assert alive(mark) == []


def test_the_mark_would_be_seen() -> None:
    """So that the other tests of this file can fail."""

    async def look_inside() -> list[str]:
        argv, mark = tree()
        running = asyncio.create_task(LocalSandbox().run(argv, limits=SandboxLimits(wall_s=30.0)))
        seen: list[str] = []
        while len(seen) < 5 and not running.done():
            await asyncio.sleep(0.02)
            seen = alive(mark)
        running.cancel()
        return seen

    assert len(asyncio.run(look_inside())) >= 5


@each_kind
def test_processes_that_a_finished_program_leaves_end_with_it(kind: Kinds) -> None:
    mark = str(next(_marks))
    result = asyncio.run(kind().run(["sh", "-c", f"setsid sleep {mark} & sleep {mark} & echo done"], limits=LIMITS))
    assert (result.result_class, result.stdout) == (ResultClass.OK, "done\n")
    assert alive(mark) == []


@each_kind
@pytest.mark.parametrize("delay_s", [*(n * 0.0005 for n in range(40)), 0.03, 0.1, 0.3])
def test_a_cancelled_execution_is_gone_when_the_await_returns(kind: Kinds, delay_s: float) -> None:
    async def cancelled() -> list[str]:
        argv, mark = tree()
        sandbox = kind()
        # The size of the disk stands on the command line of bwrap and of its child, during their setup too.
        disk_mib = 1000 + int(mark) % 4999
        running = asyncio.create_task(sandbox.run(argv, limits=SandboxLimits(wall_s=30.0, disk_mib=disk_mib)))
        await asyncio.sleep(delay_s)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        left = [*alive(mark), *alive(f"--size {disk_mib << 20} ")]
        await sandbox.close()
        return left

    before = set(own_children()), len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    assert asyncio.run(cancelled()) == []
    assert (set(own_children()), len(os.listdir("/proc/self/fd"))) == before  # noqa: PTH208


@each_kind
def test_a_deadline_of_the_caller_ends_the_tree_too(kind: Kinds) -> None:
    async def late() -> list[str]:
        argv, mark = tree()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(kind().run(argv, limits=SandboxLimits(wall_s=30.0)), 0.2)
        return alive(mark)

    assert asyncio.run(late()) == []


@each_kind
def test_time_starts_when_the_program_does_not_when_it_queues(kind: Kinds) -> None:
    async def queue() -> list[ResultClass]:
        sandbox = kind(concurrency=1)
        calls: list[Awaitable[Any]] = [sandbox.run(["sleep", "0.25"], limits=LIMITS) for _ in range(4)]
        return [result.result_class for result in await asyncio.gather(*calls)]

    assert asyncio.run(queue()) == [ResultClass.OK] * 4


SUPERVISOR = """
import asyncio, sys
from posttrain.core.sandboxing import SandboxLimits
from posttrain.core.registry import build
asyncio.run(build("sandbox", sys.argv[1]).run(sys.argv[2:], limits=SandboxLimits(wall_s=60.0)))
"""


@pytest.mark.parametrize("name", ["local", "bubblewrap"])
def test_nothing_outlives_a_supervisor_that_was_killed(name: str) -> None:
    argv, mark = tree()
    supervisor = subprocess.Popen([sys.executable, "-c", SUPERVISOR, name, *argv])
    try:
        while sum("import" not in line for line in alive(mark)) < 5:
            assert supervisor.poll() is None
            time.sleep(0.02)
    finally:
        supervisor.send_signal(signal.SIGKILL)
        supervisor.wait()
    for _ in range(500):
        if not alive(mark):
            return
        time.sleep(0.02)
    pytest.fail(f"still there after 10 s: {alive(mark)}")
