"""A memory and process limit over a whole tree of processes, where the host lets us make control groups.

Both versions of the kernel's interface: separate hierarchies (v1), and the unified one where the group that we are in
is ours to divide (v2). Groups are named after the process that made them; whoever starts next removes those whose
process is gone.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

_PREFIX = "posttrain"
_REMOVALS, _REMOVAL_PAUSE_S = 10, 0.005
_numbers = itertools.count()
_left: set[Path] = set()
"""Groups of ours that could not be removed yet."""


@dataclass(frozen=True)
class Files:
    """The names of one version of the interface."""

    memory: tuple[str, ...]
    """To be written in this order when the limit rises, and in the other when it falls."""
    events: str


_V1 = Files(("memory.memsw.limit_in_bytes", "memory.limit_in_bytes"), "memory.oom_control")
_V2 = Files(("memory.max",), "memory.events")


@dataclass(frozen=True)
class Parents:
    """Where groups can be made: two folders of v1, or the same one of v2 twice."""

    memory: Path
    pids: Path
    files: Files


class Cgroup:
    """Made by `make`; `remove` it when all its processes are dead."""

    def __init__(self, parents: Parents) -> None:
        self._name = f"{_PREFIX}-{os.getpid()}-{next(_numbers)}"
        self._memory, self._pids, self._files = parents.memory / self._name, parents.pids / self._name, parents.files
        self._limited = (0, 0)
        self._events = -1
        try:
            for folder in self._folders:
                folder.mkdir()
            self._events = os.open(self._memory / self._files.events, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            with contextlib.suppress(OSError):
                self.remove()
            raise
        if self._files is _V2:
            with contextlib.suppress(OSError):  # a kernel without swap has no such file
                (self._memory / "memory.swap.max").write_text("0")

    @staticmethod
    def make() -> Cgroup | None:
        """None where the host does not let us."""
        parents = find_parents()
        return Cgroup(parents) if parents else None

    @property
    def _folders(self) -> tuple[Path, ...]:
        return tuple(dict.fromkeys((self._memory, self._pids)))

    def admit(self, pid: int) -> None:
        """And all whom it will fork, at once. That is why it is the server that joins, once, though it may then be
        among those that the kernel ends: for a process that joins later the kernel waits, up to some ten milliseconds,
        until every processor has noticed."""
        for folder in self._folders:
            (folder / "cgroup.procs").write_text(str(pid))

    def limit(self, memory_bytes: int, num_processes: int) -> None:
        if self._limited == (memory_bytes, num_processes):
            return
        names = [name for name in self._files.memory if (self._memory / name).exists()]
        for name in names if memory_bytes > self._limited[0] and self._limited[0] else reversed(names):
            (self._memory / name).write_text(str(memory_bytes))
        (self._pids / "pids.max").write_text(str(num_processes))
        self._limited = (memory_bytes, num_processes)

    def num_oom_kills(self) -> int:
        """Processes that the kernel ended for the memory of all of them, since the group was made."""
        found = re.search(rb"^oom_kill (\d+)", os.pread(self._events, 4096, 0), re.MULTILINE)
        return int(found[1]) if found else 0

    def remove(self) -> None:
        """Raises `OSError` where the kernel refuses; then it is tried again with the next one."""
        if self._events >= 0:
            with contextlib.suppress(OSError):  # closed already, by somebody else
                os.close(self._events)
            self._events = -1
        _left.update(self._folders)
        for attempts_left in reversed(range(_REMOVALS)):
            errors = _remove_left()
            refused = [errors[folder] for folder in self._folders if folder in errors]
            if not refused:
                return
            if not attempts_left or refused[0].errno != errno.EBUSY:
                raise refused[0]
            time.sleep(_REMOVAL_PAUSE_S)  # the dead leave a group a moment after they were waited for


@functools.cache
def find_parents() -> Parents | None:
    """Found by making a group and limiting it; leftovers of dead processes are removed."""
    for parents in _candidates(Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text()):
        for folder in {parents.memory, parents.pids}:
            _sweep(folder)
        try:
            trial = Cgroup(parents)
        except OSError:
            continue
        try:
            trial.limit(1 << 30, 64)
            trial.num_oom_kills()
            trial.remove()
        except OSError:
            with contextlib.suppress(OSError):
                trial.remove()
            continue
        return parents
    return None


def _candidates(memberships: str, mounts: str) -> list[Parents]:
    """From the texts of /proc/self/cgroup and /proc/self/mountinfo."""
    own = {name: path for _, names, path in _lines(memberships) for name in names.split(",")}
    where: dict[str, Path] = {}
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        root, point = before.split()[3:5]
        kind, _, options = after.split(" ", 2)
        names = [""] if kind == "cgroup2" else options.split(",") if kind == "cgroup" else []
        for name in names:
            inside = own.get(name, "/").removeprefix(root if root != "/" else "")
            where.setdefault(name, Path(point, inside.lstrip("/")))
    found = []
    if "memory" in where and "pids" in where:
        found.append(Parents(where["memory"], where["pids"], _V1))
    if "" in where:
        found.append(Parents(where[""], where[""], _V2))
    return found


def _lines(memberships: str) -> list[tuple[str, str, str]]:
    return [(number, names, path) for number, names, path in (line.split(":", 2) for line in memberships.splitlines())]


def _remove_left() -> dict[Path, OSError]:
    errors: dict[Path, OSError] = {}
    for folder in tuple(_left):
        try:
            folder.rmdir()
        except FileNotFoundError:
            _left.discard(folder)
        except OSError as error:
            errors[folder] = error
        else:
            _left.discard(folder)
    return errors


def _sweep(parent: Path) -> None:
    for folder in parent.glob(f"{_PREFIX}-*-*"):
        pid = folder.name.split("-")[1]
        if not Path("/proc", pid).exists():
            with contextlib.suppress(OSError):
                folder.rmdir()
