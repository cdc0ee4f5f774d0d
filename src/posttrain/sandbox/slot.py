"""A place where programs run: walls that stay, and in them a server that forks a child for each execution.

One execution at a time, from any thread and any event loop; who may use it when is `pool.py`'s affair. Nothing is
kept between two executions but the server itself, so a slot need not be trusted less after a hostile program: it is
given up when its server fails, not when a program did.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
from collections.abc import Sequence
from pathlib import Path

from posttrain.core.errors import SandboxError
from posttrain.core.sandboxing import SandboxLimits
from posttrain.sandbox.cgroup import Cgroup
from posttrain.sandbox.inside.server import DONE, HELLO, ONCE, OPEN, STOP
from posttrain.sandbox.job import job_frame
from posttrain.sandbox.order import MIB, Order, max_files
from posttrain.sandbox.profile import Profile
from posttrain.sandbox.tree import Tree
from posttrain.sandbox.walls import Walls

_START_TIMEOUT_S = 30.0
_NUM_OURS = 2
"""Processes, at most: the server, and one that it forks for itself (`inside/cells.py`), also when a program has all it
may have. It is the limit by user that holds a program to its number exactly."""
_MEMORY_MORE = 16 * MIB
"""Of the tree, over the limit of one process: pages of the server that are written to, and the kernel's own."""


class Slot:
    """Starting one blocks for about a tenth of a second. Raises `SandboxError` with what it said where it does not
    start. `control` is for whoever runs an execution on it (`turn.py`)."""

    def __init__(self, walls: Walls, profile: Profile) -> None:
        self.profile = profile
        self.reset_s = 0.0
        """What the last replacement of the box took."""
        self.beside: SandboxLimits | None = None
        """Of what lives on while others run; they do not share theirs with it."""
        self._walls = walls
        self._num_oom_kills = 0
        self._tree: Tree | None = None
        self._lost: SandboxError | None = None
        self._cgroup: Cgroup | None = None
        self._diary = -1
        try:
            self.control, inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            raise SandboxError(f"sandbox could not make a slot: {error}") from error
        try:
            self._diary = os.memfd_create("posttrain-slot", os.MFD_CLOEXEC)
            self._cgroup = Cgroup.make()
            self.landlock_abi = self._start(inside)
            self._base_bytes = self._look_at_server()
        except BaseException as error:
            said = self.said()
            with contextlib.suppress(OSError):  # its group, which is tried again with the next
                self.close()
            if isinstance(error, OSError):
                raise SandboxError(f"sandbox could not make a slot: {error}; {said}".removesuffix("; ")) from error
            raise
        finally:
            inside.close()

    @property
    def alive(self) -> bool:
        if self._tree is None or self._tree.outer < 0:
            return False
        poll = select.poll()
        for pidfd in (self._tree.outer, self._tree.first):
            poll.register(pidfd, select.POLLIN)
        return not poll.poll(0)

    @property
    def server(self) -> int:
        """Readable when it has ended."""
        assert self._tree is not None
        return self._tree.first

    @property
    def has_cgroup(self) -> bool:
        return self._cgroup is not None

    def job(self, order: Order) -> bytes:
        num_ours = self._walls.num_ours
        if self.beside:
            num_ours += num_ours + self.beside.processes  # a step has a warden then
        return job_frame(order, base_bytes=self._base_bytes, num_ours=num_ours)

    def submit(self, limits: SandboxLimits, descriptors: Sequence[int], word: bytes = ONCE) -> None:
        """Have the server fork: `descriptors` are the child's standard streams, its inputs and its answers. Raises
        `OSError` where the server is gone."""
        if self._cgroup:
            memory_mib = limits.memory_mib + limits.disk_mib + (self.beside.memory_mib if self.beside else 0)
            processes = limits.processes + (self.beside.processes if self.beside else 0)
            self._cgroup.limit(memory_mib * MIB + _MEMORY_MORE, _NUM_OURS + processes)
            self._num_oom_kills = self._cgroup.num_oom_kills()
        packet = b"%s %s" % (word, self._box(limits)) if word == ONCE else word
        socket.send_fds(self.control, [packet], descriptors)

    async def open_box(self, limits: SandboxLimits) -> None:
        """Have a box that stays until it is closed."""
        await self.change(OPEN, *map(int, self._box(limits).split()))

    async def change(self, word: bytes, *numbers: int) -> None:
        """Of a session's box. Raises `OSError` with what the kernel said, or where the server is gone."""
        loop = asyncio.get_running_loop()
        try:
            await loop.sock_sendall(self.control, b" ".join([word, *(b"%d" % number for number in numbers)]))
            answer = await loop.sock_recv(self.control, 256)
        except BaseException:
            self.close()  # the answer would be taken for that to another question
            raise
        if answer != DONE:
            raise OSError(answer.decode(errors="replace").strip() or "the server is gone")

    def _box(self, limits: SandboxLimits) -> bytes:
        return b"%d %d %d" % (self._walls.user(), limits.disk_mib, max_files(limits.disk_mib))

    def stop(self) -> None:
        """Have the server end what runs, and report."""
        self.control.send(STOP)

    def kill(self) -> None:
        """The server, and all with it."""
        if self._tree:
            self._tree.kill()

    def ran_out_of_memory(self) -> bool:
        """Since the last `submit`."""
        return self._cgroup is not None and self._cgroup.num_oom_kills() > self._num_oom_kills

    def said(self) -> str:
        """What the server, or who was to start it, complained of, where it can be read."""
        try:
            return os.pread(self._diary, 2000, 0).decode(errors="replace").strip()
        except OSError:
            return ""

    def close(self) -> None:
        """Idempotent. When it returns, nothing is left of the slot; until then it raises each time, `SandboxError` for
        processes that could not be ended and `OSError` for a control group."""
        diary, self._diary = self._diary, -1
        with contextlib.suppress(OSError):  # closed already, by somebody else
            self.control.close()
        with contextlib.suppress(OSError):
            os.close(diary)
        try:
            if self._tree:
                self._tree.end()
        except SandboxError as error:
            self._lost = error
        finally:
            if self._cgroup:
                self._cgroup.remove()
        if self._lost:
            raise self._lost

    def _start(self, inside: socket.socket) -> int:
        """The server's Landlock ABI."""
        ours: list[int] = []
        try:
            info, info_w = os.pipe()
            ours += (info, info_w)
            launch = self._walls.launch(self.profile, control=inside.fileno(), info=info_w)
            ours.append(launch.code_fd)
            ours.append(null := os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))
            self._tree = Tree(
                launch.command,
                stdin=null,
                stdout=self._diary,
                stderr=self._diary,
                pass_fds=[inside.fileno(), info_w, launch.code_fd],
                environment=launch.environment,
                clean_up_s=launch.clean_up_s,
            )
            inside.close()
            hello = self._hello(self._tree.outer)
            if not hello.startswith(HELLO):
                raise SandboxError(f"sandbox server did not start: {self.said() or 'it said nothing'}")
            self._tree.hear(os.read(info, 4096))
            if not self._tree.first_pid:
                raise SandboxError(f"sandbox server ended as soon as it was there: {self.said()}".removesuffix(": "))
            if self._cgroup:
                self._cgroup.admit(self._tree.first_pid)
        finally:
            inside.close()
            for fd in ours:
                os.close(fd)
        return int(hello.split()[1])

    def _hello(self, outer: int) -> bytes:
        """Empty where none comes in time, or before the outer process has ended."""
        poll = select.poll()
        for fd in (self.control.fileno(), outer):
            poll.register(fd, select.POLLIN)
        poll.poll(_START_TIMEOUT_S * 1000)
        self.control.setblocking(False)
        try:
            return self.control.recv(64)
        except OSError:
            return b""

    def _look_at_server(self) -> int:
        """Its address space in bytes. Raises `SandboxError` where the preloads have left threads: a lock that one of
        them held would stay locked in every child."""
        assert self._tree is not None
        folder = Path("/proc", str(self._tree.first_pid))
        if len(list((folder / "task").iterdir())) > 1:
            raise SandboxError(f"the preloads of profile {self.profile.name!r} leave threads running; it cannot fork")
        return int((folder / "statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
