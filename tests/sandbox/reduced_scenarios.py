"""What `test_reduced.py` has an ordinary user do: `python -m tests.sandbox.reduced_scenarios NAME` prints what came of
it as JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import dataclasses
import errno
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from posttrain.core.errors import IsolationUnavailableError
from posttrain.core.sandboxing import RunResult, SandboxLimits
from posttrain.sandbox import probe_reduced
from posttrain.sandbox.bubblewrap import find_machine
from posttrain.sandbox.conversation import Conversation
from posttrain.sandbox.local import LocalSandbox
from posttrain.sandbox.order import Order
from posttrain.sandbox.outcome import judge
from posttrain.sandbox.probe_reduced import reduced_isolation
from posttrain.sandbox.profile import PROFILES
from posttrain.sandbox.reduced import ReducedHost, find_reduced_host
from posttrain.sandbox.seccomp import filter_program
from posttrain.sandbox.slot import Slot
from posttrain.sandbox.turn import execute_on

LIMITS = SandboxLimits(wall_s=60.0, cpu_s=20.0, memory_mib=256, processes=6, disk_mib=2)
ENDLESS = dataclasses.replace(LIMITS, wall_s=0.5)
NUM_OUTERS = 2
"""Processes of a slot in which nothing runs."""

FORKS_IN_TIME = """
import os
def f():
    while True:
        os.fork()
        if os.fork(): os._exit(0)
"""
DAEMONS = """
import os, signal, time
def f():
    for number in range(1, 65):
        if number not in (9, 19, 32, 33): signal.signal(number, signal.SIG_IGN)
    for _ in range(2):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0: time.sleep(600)
            os._exit(0)
"""
LEAVES = """
import os
def f(outside):
    where = os.getcwd()
    for path in (".", os.environ["TMPDIR"], ".."):
        os.symlink(outside, path + "/folder")
        os.symlink(outside + "/kept", path + "/file")
        os.mkdir(path + "/shut", 0)
    os.mkdir(b"\\xff\\n")
    for _ in range(3000):
        os.mkdir("d")
        os.chdir("d")
    open("deep", "w").close()
"""
LOOKS = """
import os
def f(): return sorted(os.listdir("..")), os.listdir("."), os.listdir(os.environ["TMPDIR"])
"""
COUNTS = """
import os, time
def f():
    num = 1
    try:
        while num < 60:
            if os.fork() == 0: time.sleep(600)
            num += 1
    except BlockingIOError: pass
    return num
"""
SUPERVISOR = """
import asyncio
from tests.sandbox.reduced_scenarios import DAEMONS, a_slot, call, mark_of

async def main():
    async with a_slot() as slot:
        print(mark_of(slot), flush=True)
        await call(slot, DAEMONS + "    time.sleep(600)")

asyncio.run(main())
"""


@contextlib.asynccontextmanager
async def a_slot() -> AsyncIterator[Slot]:
    slot = Slot(find_reduced_host(), PROFILES["python"])
    try:
        yield slot
    finally:
        slot.close()


async def call(slot: Slot, source: str, *arguments: Any, limits: SandboxLimits = LIMITS) -> tuple[RunResult, Any]:
    conversation = Conversation([arguments])
    ended = await execute_on(slot, Order(limits, source=source, function="f"), conversation)
    return judge(ended, find_reduced_host().tier, limits, conversation), conversation.outputs()[0].value


def marked(mark: str) -> list[str]:
    """Processes whose command line has it; all that come of a slot's server do, unless they execute something."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if mark.encode() in path.read_bytes():
                found.append(path.parent.name)
    return found


def mark_of(slot: Slot) -> str:
    assert slot._tree
    return slot._tree._mark


def boxes() -> list[str]:
    return [path.name for path in Path(tempfile.gettempdir()).glob("posttrain-box-*")]


async def use() -> Any:
    sandbox = LocalSandbox(isolation="reduced")
    vector = "import numpy\ndef f(x): return float(numpy.linalg.norm(numpy.array(x)))"
    called = await sandbox.call(vector, "f", [[[3.0, 4.0]]], limits=LIMITS, profile="numpy")
    script = "import os, pathlib\nprint(sorted(os.environ), pathlib.Path('a/b').read_text())"
    ran = await sandbox.run(["python3", "main.py"], files={"main.py": script, "a/b": "laid"}, limits=LIMITS)
    status = sandbox.status()
    await sandbox.close()
    return {
        "value": called.outputs[0].value,
        "tiers": [sandbox.tier, called.run.tier, ran.tier, status.tier],
        "stdout": ran.stdout,
        "concurrency": status.concurrency,
        "missing": status.missing,
        "boxes": boxes(),
    }


async def leave_files() -> Any:
    with tempfile.TemporaryDirectory() as outside:
        Path(outside, "kept").write_text("kept")
        Path(outside).chmod(0o755)
        async with a_slot() as slot:
            left, _ = await call(slot, LEAVES, outside)
            _, seen = await call(slot, LOOKS)
            await call(slot, LEAVES, outside)
        kept = {path.name: path.read_text() for path in Path(outside).iterdir()}
        mode = Path(outside).stat().st_mode & 0o777
    return {"left": left.reason, "seen": seen, "kept": kept, "mode": mode, "boxes": boxes()}


async def leave_processes() -> Any:
    found = {}
    for name, source in (("daemons", DAEMONS), ("forks in time", FORKS_IN_TIME)):
        async with a_slot() as slot:
            await call(slot, source, limits=ENDLESS)
            found[name] = {"left": len(marked(mark_of(slot))) - NUM_OUTERS, "alive": slot.alive}
        found[name]["at the end"] = len(marked(mark_of(slot)))
    return found


async def count_processes() -> Any:
    """Beside others of this user, some of which /proc may not show."""
    sleepers = [subprocess.Popen(["sleep", "600"]) for _ in range(7)]
    async with a_slot() as slot:
        first = (await call(slot, COUNTS))[1]
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()
        second = (await call(slot, COUNTS))[1]
    return [first, second]


async def program_with_daemons(slot: Slot) -> asyncio.Task[tuple[RunResult, Any]]:
    """That all run."""
    running = asyncio.create_task(call(slot, DAEMONS + "    time.sleep(600)"))
    while len(marked(mark_of(slot))) < NUM_OUTERS + 3:
        assert not running.done()
        await asyncio.sleep(0.01)
    return running


async def kill_server() -> Any:
    async with a_slot() as slot:
        mark, running = mark_of(slot), await program_with_daemons(slot)
        os.kill(slot._tree.first_pid, signal.SIGKILL)  # type: ignore[union-attr]
        result, _ = await running
    return {"class": result.result_class, "left": marked(mark), "boxes": boxes()}


async def cancel() -> Any:
    async with a_slot() as slot:
        mark, running = mark_of(slot), await program_with_daemons(slot)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        return {"left": marked(mark), "boxes": boxes()}


async def kill_supervisor() -> Any:
    """While a program and its daemons run."""
    with subprocess.Popen([sys.executable, "-c", SUPERVISOR], stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout
        mark = supervisor.stdout.readline().strip()
        assert mark
        while len(marked(mark)) < NUM_OUTERS + 3:
            assert supervisor.poll() is None
            await asyncio.sleep(0.01)
        supervisor.kill()
    for _ in range(1000):
        if not marked(mark):
            break
        await asyncio.sleep(0.02)
    return {"left": marked(mark), "boxes": boxes()}


def without(change: Callable[[ReducedHost], ReducedHost]) -> str:
    """The sentence with which a machine with this hole is refused."""
    probe_reduced.find_reduced_host = lambda: change(find_reduced_host())  # type: ignore[attr-defined]
    try:
        return str(reduced_isolation().tier)
    except IsolationUnavailableError as error:
        return str(error)


async def unfiltered() -> Any:
    allow_everything = struct.pack("=HBBI", 0x06, 0, 0, 0x7FFF0000)
    return without(lambda host: dataclasses.replace(host, seccomp=allow_everything))


async def filtered_as_in_namespaces() -> Any:
    return without(lambda host: dataclasses.replace(host, seccomp=filter_program(find_machine())))


async def everything_readable() -> Any:
    return without(lambda host: dataclasses.replace(host, prefix=Path("/")))


async def without_landlock() -> Any:
    """As in a container whose filter does not know its calls."""
    no_landlock = [
        (0x20, 0, 0, 0),
        (0x15, 0, 1, 444),
        (0x06, 0, 0, 0x00050000 | errno.ENOSYS),
        (0x06, 0, 0, 0x7FFF0000),
    ]
    program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in no_landlock))
    libc = ctypes.CDLL(None)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, struct.pack("@HP", len(no_landlock), ctypes.addressof(program)), 0, 0) == 0
    return without(lambda host: host)


SCENARIOS: Mapping[str, Callable[[], Awaitable[Any]]] = {
    scenario.__name__: scenario
    for scenario in (
        use,
        leave_files,
        leave_processes,
        count_processes,
        kill_server,
        cancel,
        kill_supervisor,
        unfiltered,
        filtered_as_in_namespaces,
        everything_readable,
        without_landlock,
    )
}


if __name__ == "__main__":
    in_memory = (
        "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    )  # deleting a folder can take milliseconds on a disk
    with tempfile.TemporaryDirectory(dir=in_memory) as ours:
        tempfile.tempdir = os.environ["TMPDIR"] = ours
        print(json.dumps(asyncio.run(SCENARIOS[sys.argv[1]]())))  # type: ignore[arg-type]
