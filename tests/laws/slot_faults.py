"""Faults to throw at the slots of a `LocalSandbox`: servers killed, calls refused, control groups lost, pipes cut.

A fault is a context around one execution and strikes before it, while it runs or when it is over; `Stage` counts the
strikes that hit something. They are the machine's doing, or that of other code in our process, never a program's. Where
each strikes is drawn from a generator that the caller gives; what it meets there is also a matter of time.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
import select
import signal
import socket
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest
from tests.own_children import children_of, own_children

from posttrain.sandbox import local, watch
from posttrain.sandbox.bubblewrap import Host
from posttrain.sandbox.pipes import Pipes
from posttrain.sandbox.profile import Profile
from posttrain.sandbox.slot import Slot
from posttrain.sandbox.walls import Launch

_LONGEST_DELAY_S = 0.2
_SETUP_TIMEOUT_S = 2.0
_FOR_EVER = 1 << 30
_FULL = -1
"""In place of an error number: what is made is full."""


class Stage:
    """Sees each slot and each execution's pipes, and stands before the system calls that can be refused."""

    def __init__(self, patch: pytest.MonkeyPatch, mark: str) -> None:
        self.mark = mark
        """On the command lines of bubblewrap and of the server, and so of the server's children."""
        self.hits: Counter[str] = Counter()
        """By the moment."""
        self.refusals: list[Refusal] = []
        self.strangers: dict[int, int] = {}
        """Inodes of files of somebody else, by the numbers that they have taken."""
        self._slots: list[Slot] = []
        self._pipes: list[Pipes] = []
        patch.setattr(local, "Slot", self._start)
        patch.setattr(watch, "Pipes", self._make_pipes)
        patch.setattr(watch, "SETUP_TIMEOUT_S", _SETUP_TIMEOUT_S)  # which a lost pipe may take
        for name, seam in SEAMS.items():
            if seam.owner is None:
                continue
            patch.setattr(seam.owner, seam.attribute, self._guarded(name, getattr(seam.owner, seam.attribute)))

    @property
    def slots(self) -> list[Slot]:
        """That were not given up."""
        self._slots = [slot for slot in self._slots if slot._tree and slot._tree.outer >= 0]
        return self._slots

    @property
    def pipes(self) -> list[Pipes]:
        """Of executions under way."""
        self._pipes = [pipes for pipes in self._pipes if pipes._fds]
        return self._pipes

    def trees(self) -> list[tuple[int, ...]]:
        """Bubblewrap, and pid 1 where it is there already, of each slot, one that is just being started included."""
        found = []
        for bwrap in own_children():
            if self.mark.encode() in command_line(bwrap):
                found.append((bwrap, *children_of(Path(f"/proc/{bwrap}/task/{bwrap}"))))
        return found

    def close_strangers(self) -> None:
        for fd, inode in self.strangers.items():
            with contextlib.suppress(OSError):
                if os.fstat(fd).st_ino == inode:
                    os.close(fd)
        self.strangers.clear()

    def refuse(self, name: str, arguments: tuple[Any, ...]) -> int:
        """The number of the error that is due; 0 for none."""
        for refusal in tuple(self.refusals):
            if refusal.seam == name and SEAMS[name].concerns(self, arguments) and refusal.is_due():
                return refusal.error
        return 0

    def _start(self, host: Host, profile: Profile) -> Slot:
        of_host = {field.name: getattr(host, field.name) for field in fields(host)}
        slot = Slot(_MarkedHost(**of_host, mark=self.mark), profile)
        self._slots.append(slot)
        return slot

    def _make_pipes(self, loop: asyncio.AbstractEventLoop) -> Pipes:
        self._pipes.append(pipes := Pipes(loop))
        return pipes

    def _guarded(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            error = self.refuse(name, arguments)
            if error == _FULL:
                return os.open("/dev/full", os.O_RDWR | os.O_CLOEXEC)
            if error:
                raise OSError(error, os.strerror(error))
            made = real(*arguments, **options)
            return _Epoll(self, made) if name == "epoll" else made

        return call


@dataclass(frozen=True)
class _MarkedHost(Host):
    mark: str = ""

    def launch(self, profile: Profile, *, control: int, info: int) -> Launch:
        launch = super().launch(profile, control=control, info=info)
        return replace(launch, command=[*launch.command, self.mark])


class _Epoll:
    """`select.epoll`, whose own methods cannot be patched."""

    def __init__(self, stage: Stage, epoll: select.epoll) -> None:
        self._stage, self._epoll = stage, epoll

    def register(self, fd: int, events: int) -> None:
        if error := self._stage.refuse("watch", (fd,)):
            raise OSError(error, os.strerror(error))
        self._epoll.register(fd, events)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._epoll, name)


# ── when ──────────────────────────────────────────────────────────────────────────────────────────────────────────

Strike = Callable[[Stage, random.Random], bool]
"""Whether there was anything to hit."""
Fault = Callable[[Stage, random.Random], AbstractContextManager[None]]


def struck_by(strike: Strike) -> Fault:
    @contextlib.contextmanager
    def fault(stage: Stage, draw: random.Random) -> Iterator[None]:
        def now(moment: str) -> None:
            stage.hits[moment] += strike(stage, draw)

        moment = draw.choice(("before", "while", "while", "while", "after"))
        delay_s = (
            draw.random() ** 5 * _LONGEST_DELAY_S
        )  # most executions take milliseconds, a start a tenth of a second
        if moment == "before":
            now(moment)
        timer = None
        if moment == "while":
            timer = asyncio.get_running_loop().call_later(delay_s, now, moment)
        yield
        if moment == "after" or (timer and timer.when() > asyncio.get_running_loop().time()):
            now("after")
        if timer:
            timer.cancel()

    return fault


# ── servers ───────────────────────────────────────────────────────────────────────────────────────────────────────


def kill(stage: Stage, draw: random.Random) -> bool:
    """Pid 1, bubblewrap or both, by their numbers or pid 1 by its pidfd."""
    trees = stage.trees()
    if not trees:
        return False
    if draw.random() < 0.2 and stage.slots:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(draw.choice(stage.slots).server, signal.SIGKILL)
        return True
    tree = draw.choice(trees)
    for pid in draw.choice((tree, tree[:1], tree[1:], tree[::-1])) or tree:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return True


# ── refused calls ─────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Seam:
    """A function by which the machine refuses."""

    owner: Any
    attribute: str
    errors: tuple[int, ...]
    concerns: Callable[[Stage, tuple[Any, ...]], bool] = lambda stage, arguments: True


@dataclass(eq=False)  # two that look alike are two
class Refusal:
    seam: str
    error: int
    num_allowed: int = 0
    """Calls before the first that is refused."""
    num_refused: int = _FOR_EVER
    num_hits: int = 0

    def is_due(self) -> bool:
        """Asked at each call."""
        self.num_allowed -= 1
        if self.num_allowed >= 0 or self.num_hits >= self.num_refused:
            return False
        self.num_hits += 1
        return True


def _of_a_group(stage: Stage, arguments: tuple[Any, ...]) -> bool:
    return f"posttrain-{os.getpid()}-" in str(arguments[0])


def _of_an_execution(stage: Stage, arguments: tuple[Any, ...]) -> bool:
    return any(arguments[0] in pipes._fds for pipes in stage.pipes)


_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
_LOST = (errno.ENODEV, errno.ENOENT, errno.EIO)
SEAMS = {
    "pipe": Seam(os, "pipe", _NO_DESCRIPTORS),
    "memory file": Seam(os, "memfd_create", (*_NO_DESCRIPTORS, errno.ENOSPC, errno.ENOMEM, _FULL, _FULL)),
    "dup": Seam(os, "dup", _NO_DESCRIPTORS),
    "open": Seam(os, "open", (*_NO_DESCRIPTORS, errno.ENOSPC)),
    "pidfd": Seam(os, "pidfd_open", _NO_DESCRIPTORS),
    "socket": Seam(socket, "socketpair", _NO_DESCRIPTORS),
    "send": Seam(socket, "send_fds", (errno.ENOBUFS, errno.EAGAIN, errno.ETOOMANYREFS)),
    "process": Seam(subprocess, "Popen", (errno.EAGAIN, errno.ENOMEM)),
    "epoll": Seam(select, "epoll", _NO_DESCRIPTORS),
    "watch": Seam(None, "", (errno.ENOSPC, errno.ENOMEM)),  # `_Epoll.register` asks
    "read": Seam(os, "read", (errno.EIO,), _of_an_execution),
    "write": Seam(os, "write", (errno.EIO, errno.ENOSPC), _of_an_execution),
    "make group": Seam(Path, "mkdir", (errno.ENOSPC, errno.EAGAIN, errno.ENOENT), _of_a_group),
    "limit group": Seam(Path, "write_text", (*_LOST, errno.EBUSY, errno.ENOSPC), _of_a_group),
    "remove group": Seam(Path, "rmdir", (errno.EBUSY,), _of_a_group),
    "look at group": Seam(os, "pread", _LOST),
}
_OF_GROUPS = ("make group", "limit group", "remove group", "look at group", "open")


def refused(*seams: str) -> Fault:
    """One of the system calls fails: once, a few times or for as long as the execution is tried."""

    @contextlib.contextmanager
    def fault(stage: Stage, draw: random.Random) -> Iterator[None]:
        name = draw.choice(seams)
        error, num_allowed = draw.choice(SEAMS[name].errors), draw.choice((0, 0, 0, 1, 1, 2, 3, 5))
        refusal = Refusal(name, error, num_allowed, draw.choice((1, 1, 2, 3, _FOR_EVER)))
        if draw.random() < 0.3:  # so that a new one has to be started
            for slot in stage.slots:
                slot.kill()
        stage.refusals.append(refusal)
        yield
        stage.refusals.remove(refusal)
        stage.hits["while"] += refusal.num_hits > 0

    return fault


# ── control groups ────────────────────────────────────────────────────────────────────────────────────────────────


def remove_group(stage: Stage, draw: random.Random) -> bool:
    """Of memory, of processes or both; who is in it goes to the group above."""
    groups = [slot._cgroup for slot in stage.slots if slot._cgroup]
    if not groups:
        return False
    folders = draw.choice(groups)._folders
    removed = False
    for folder in draw.choice((folders, folders[:1], folders[-1:])):
        with contextlib.suppress(OSError):
            for pid in (folder / "cgroup.procs").read_text().split():
                (folder.parent / "cgroup.procs").write_text(pid)
            folder.rmdir()
            removed = True
    return removed


def lost_group(stage: Stage, draw: random.Random) -> AbstractContextManager[None]:
    return draw.choice((struck_by(remove_group), refused(*_OF_GROUPS)))(stage, draw)


# ── descriptors ───────────────────────────────────────────────────────────────────────────────────────────────────


def cut(stage: Stage, draw: random.Random) -> bool:
    """Other code closes a descriptor of ours, or has another file under its number, or shuts the socket down."""
    controls = [slot.control for slot in stage.slots if slot.control.fileno() >= 0]
    if controls and draw.random() < 0.25:
        try:
            draw.choice(controls).shutdown(draw.choice((socket.SHUT_RD, socket.SHUT_WR, socket.SHUT_RDWR)))
        except OSError:
            return False
        return True
    fd = _any_descriptor(stage, draw)
    if fd < 0:
        return False
    if draw.random() < 0.5:
        with contextlib.suppress(OSError):
            os.close(fd)
        return True
    stranger = os.memfd_create("posttrain-stranger")
    stage.strangers[fd] = os.fstat(stranger).st_ino
    if stranger != fd:  # it was closed already
        os.dup2(stranger, fd, inheritable=False)
        os.close(stranger)
    return True


def _any_descriptor(stage: Stage, draw: random.Random) -> int:
    """Of an execution half of the time; -1 where there is none."""
    of_slots = []
    for slot in stage.slots:
        assert slot._tree is not None
        group = slot._cgroup._events if slot._cgroup else -1
        of_slots += [slot.control.fileno(), slot._tree.first, slot._tree.outer, slot._diary, group]
    of_executions = [fd for pipes in stage.pipes for fd in sorted(pipes._fds)]
    found = of_executions if of_executions and draw.random() < 0.6 else of_slots
    return draw.choice([fd for fd in found if fd >= 0] or [-1])


# ── processes ─────────────────────────────────────────────────────────────────────────────────────────────────────


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


FAULTS: dict[str, Fault] = {
    "server killed": struck_by(kill),
    "disk or descriptors used up": refused(*(name for name in SEAMS if "group" not in name)),
    "control group lost": lost_group,
    "descriptor cut": struck_by(cut),
}
