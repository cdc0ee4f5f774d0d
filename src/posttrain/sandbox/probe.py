"""What isolation this machine gives, found by doing: build the walls, try to get out, be ended; once per process.

Either everything holds, and how to launch is returned, or `IsolationUnavailableError` says which part is missing and
which setting brings it. It never settles for less (law L27), and it does not guess from versions. Walls that stay
(`slot_isolation`) and walls for one execution (`single_host`) are tried apart, since they are built apart.
"""

from __future__ import annotations

import asyncio
import functools
import platform
import socket
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from posttrain.core.errors import IsolationUnavailableError, SandboxError
from posttrain.core.sandboxing import CallOutput, IsolationTier, OutputStatus, ResultClass, SandboxLimits
from posttrain.core.types import Json
from posttrain.sandbox.bubblewrap import Host, find_host
from posttrain.sandbox.conversation import Conversation
from posttrain.sandbox.execution import execute
from posttrain.sandbox.order import Order
from posttrain.sandbox.outcome import judge
from posttrain.sandbox.profile import PROFILES
from posttrain.sandbox.slot import Slot
from posttrain.sandbox.turn import execute_on
from posttrain.sandbox.walls import Walls
from posttrain.sandbox.watch import Ended

_LOOK_LIMITS = SandboxLimits(wall_s=20.0, processes=4, memory_mib=256, disk_mib=1)
_ENDLESS_LIMITS = SandboxLimits(wall_s=0.03)
_Execute = Callable[[Order, Conversation], Awaitable[Ended]]
T = TypeVar("T")

ATTEMPTS = """
import os, signal, socket

def refused(action, *arguments):
    try:
        action(*arguments)
    except OSError:
        return True
    return False

def processes():
    read, write = os.pipe()
    children = []
    try:
        while len(children) < 64:
            pid = os.fork()
            if pid == 0:
                os.close(write)
                os.read(read, 1)
                os._exit(0)
            children.append(pid)
    except BlockingIOError:
        pass
    os.close(write)
    for pid in children:
        os.waitpid(pid, 0)
    return 1 + len(children)

def forbidden_call():
    pid = os.fork()
    if pid == 0:
        try:
            os.chroot("/")
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def disk():
    try:
        with open("full", "wb") as file:
            for _ in range(4):
                file.write(bytes(1 << 20))
    except OSError:
        return True
    finally:
        os.remove("full")
    return False

def visible():
    found = []
    for pid in range(1, 5000):
        try:
            os.getpgid(pid)
            found.append(pid)
        except ProcessLookupError:
            pass
    return found

def unreachable(port):
    return all(refused(socket.create_connection, (host, port), 1.0) for host in ("127.0.0.1", "192.0.2.1"))
"""
_LOOK = """
HIDDEN = ("/etc/passwd", "/proc/self", "/sys/kernel", "/var/log")

def look(num_processes, port):
    return {
        "the program is not root": os.getuid() != 0 and refused(os.setuid, 0),
        "processes of others are out of sight": visible() == [1, os.getpid()],
        "files of the host are out of sight": not any(map(os.path.exists, HIDDEN)),
        "the system is read-only": refused(open, "/x", "w") and refused(open, "/usr/x", "w"),
        "there is no network": unreachable(port),
        "processes are limited": processes() == num_processes,
        "disk is limited": disk(),
        "system calls are filtered": forbidden_call() == -signal.SIGSYS,
    }
"""
_ENDLESS = "while True: pass"
_REDUCED = (
    'or take less on purpose, as an ordinary user: isolation = "reduced" needs Landlock alone, and runs one program at '
    "a time as your own user, who sees your processes and paths, with nothing to bound the disk that it fills"
)


@dataclass(frozen=True)
class SlotIsolation:
    """What stands between a program in a slot and this machine."""

    host: Walls
    tier: IsolationTier
    kernel: str
    landlock_abi: int
    """0 where the kernel has no Landlock: then read-only mounts alone keep a program from writing outside."""
    cgroup: bool
    """Whether memory and processes are bounded over the whole tree, not for each process alone."""


@dataclass(frozen=True)
class Trial:
    """A program that tries to get out."""

    walls: str
    """Their name for people."""
    tier: IsolationTier
    source: str
    """Defines `look`, which is asked for a sentence for each thing that must hold, and whether it does."""
    arguments: Sequence[Json] = ()
    """For `look`, behind the limit of processes and the port of a listener outside."""
    remedy: str = ""
    """Empty where there is none."""

    def unavailable(self, why: object) -> IsolationUnavailableError:
        sentence = f"{self.walls} is not available here: {why}"
        return IsolationUnavailableError(f"{sentence}; {self.remedy}" if self.remedy else sentence)


@functools.cache
def single_host() -> Host:
    """Blocks for about 0.2 s the first time. Raises `IsolationUnavailableError`."""
    host = find_host()
    aside(lambda: try_walls(_full(host), lambda order, conversation: execute(host, order, conversation)))
    return host


@functools.cache
def slot_isolation() -> SlotIsolation:
    """Blocks for about 0.2 s the first time. Raises `IsolationUnavailableError`, which also says what could be had
    instead."""
    try:
        host = find_host()
        found = try_slot(host, lambda _: _full(host))
    except IsolationUnavailableError as error:
        raise IsolationUnavailableError(f"{error}; {_REDUCED}") from error
    tier = IsolationTier.FULL if found.cgroup and not host.as_root else host.tier
    return replace(found, tier=tier)


def _full(host: Host) -> Trial:
    return Trial("isolation 'full'", host.tier, ATTEMPTS + _LOOK, remedy=remedy(host))


def try_slot(walls: Walls, trial: Callable[[int], Trial]) -> SlotIsolation:
    """`trial` for the Landlock ABI that the slot found. Raises `IsolationUnavailableError`."""
    try:
        slot = Slot(walls, PROFILES["python"])
    except SandboxError as error:
        raise trial(0).unavailable(error) from error
    tried = trial(slot.landlock_abi)
    try:
        aside(lambda: try_walls(tried, lambda order, conversation: execute_on(slot, order, conversation)))
        return SlotIsolation(walls, walls.tier, platform.release(), slot.landlock_abi, slot.has_cgroup)
    finally:
        slot.close()


def aside(attempt: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """In a thread of its own, because the caller may be inside a running event loop."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(lambda: asyncio.run(attempt())).result()


async def try_walls(trial: Trial, execute: _Execute) -> None:
    """Raises `IsolationUnavailableError`."""
    order = Order(limits=_LOOK_LIMITS, source=trial.source, function="look")
    with socket.create_server(("127.0.0.1", 0)) as server:
        conversation = Conversation([[_LOOK_LIMITS.processes, server.getsockname()[1], *trial.arguments]])
        run = judge(await execute(order, conversation), trial.tier, _LOOK_LIMITS, conversation)
    if run.result_class is ResultClass.INFRASTRUCTURE_ERROR:
        raise trial.unavailable(run.reason)
    failed = failures(conversation.outputs()[0])
    if failed:
        raise replace(trial, remedy="").unavailable(f"programs start, but it does not hold that {', '.join(failed)}")
    order = Order(limits=_ENDLESS_LIMITS, source=_ENDLESS, function="look")
    run = judge(await execute(order, Conversation([[]])), trial.tier, _ENDLESS_LIMITS)
    if run.result_class is not ResultClass.TIME_LIMIT:
        raise replace(trial, remedy="").unavailable(f"an endless program ended as {run.result_class}: {run.reason}")


def failures(look: CallOutput) -> list[str]:
    """What does not hold, from the answer of the probing program."""
    if look.status is not OutputStatus.VALUE or not isinstance(look.value, dict):
        return [f"the probing program can finish ({look.error})"]
    return [sentence for sentence, holds in look.value.items() if holds is not True]


def remedy(host: Host, sysctls: Path = Path("/proc/sys")) -> str:
    """The setting that most likely brings what is missing."""
    if host.tier is IsolationTier.ROOT_IN_CONTAINER:
        return (
            "as root this needs CAP_SYS_ADMIN, CAP_SETUID and CAP_SETGID and an interpreter that other users may read: "
            "start the container with `--cap-add SYS_ADMIN --security-opt apparmor=unconfined`, or run as an "
            "ordinary user where user namespaces are allowed"
        )
    for setting, bad, good in (
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "0"),
        ("kernel/unprivileged_userns_clone", "0", "1"),
        ("user/max_user_namespaces", "0", "65536"),
    ):
        path = sysctls / setting
        if path.is_file() and path.read_text().strip() == bad:
            return f"user namespaces are switched off: run `sudo sysctl -w {setting.replace('/', '.')}={good}`"
    return (
        "an ordinary user needs user namespaces: in a container, start it with "
        "`--security-opt seccomp=unconfined --security-opt apparmor=unconfined`"
    )
