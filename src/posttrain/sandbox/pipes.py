"""The descriptors of one execution in an event loop: read as data comes, write as room is made, closed at the end.

Reading goes on while the program runs, so a chatty program never blocks on us, and never waits for the end of file,
so a forgotten daemon that holds a pipe does not either. Nothing here knows what the bytes mean. They are polled
together, and the event loop knows the poll alone: to add and remove each would cost it as much as all the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
from collections.abc import Callable

_READ_BYTES = 1 << 16


class Pipes:
    """Owns every descriptor that it makes or is given."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._fds: set[int] = set()
        self._takers: dict[int, Callable[[bytes], None]] = {}
        self._unsent: dict[int, memoryview] = {}
        self._closing: set[int] = set()
        self._made: dict[int, tuple[int, int]] = {}
        self._poll: select.epoll | None = None
        self._actions: dict[int, Callable[[], object]] = {}
        self.fault = ""
        """Set where a descriptor failed that was ours; then what came through them says nothing."""

    def own(self, fd: int) -> int:
        self._fds.add(fd)
        return fd

    def make(self) -> tuple[int, int]:
        """The reading and the writing end of a new pipe."""
        read, write = os.pipe()
        self._made[read] = self._made[write] = _identity(read)
        return self.own(read), self.own(write)

    def check(self) -> None:
        """That none was closed behind our back, and perhaps opened again as something else: the program would have
        seen a pipe that ends."""
        for fd in self._fds & self._made.keys():
            if not _is(fd, self._made[fd]):
                self._fail(f"somebody else closed descriptor {fd}")
                self._forget(fd)  # if it is open, it is another's
        if self._poll and self._actions:
            try:
                self._poll.modify(next(iter(self._actions)), select.EPOLLIN)
            except OSError:
                self._fail("somebody else closed the poll")

    def on_data(self, fd: int, take: Callable[[bytes], None]) -> None:
        os.set_blocking(fd, False)
        self._takers[fd] = take
        self.on_ready(fd, lambda: self.read(fd))

    def on_ready(self, fd: int, action: Callable[[], object], event: int = select.EPOLLIN) -> None:
        """Also for descriptors that are not owned."""
        if self._poll is None:
            self._poll = select.epoll()
            self._loop.add_reader(self._poll.fileno(), self._on_ready)
        self._poll.register(fd, event)
        self._actions[fd] = action

    def ignore(self, fd: int) -> None:
        """From now on. Idempotent."""
        if self._actions.pop(fd, None) and self._poll:
            with contextlib.suppress(OSError):  # closed by somebody else
                self._poll.unregister(fd)

    def read(self, fd: int) -> bool:
        """Take one piece, if there is one; False where nothing is left for now."""
        if fd not in self._takers:
            return False
        try:
            data = os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return False
        except OSError as error:
            self._fail(error)
            data = b""
        if data:
            self._takers[fd](data)
        else:
            self.close(fd)
        return bool(data)

    def read_all(self, fd: int) -> None:
        """Take what is in one pipe now."""
        while self.read(fd):
            pass

    def drain(self) -> None:
        """Take what is in the pipes now; for when nobody is left to write to them."""
        for fd in list(self._takers):
            self.read_all(fd)

    def send(self, fd: int, data: bytes) -> None:
        """Queue `data`; what a closed reader does not want is dropped."""
        if fd in self._fds:
            with contextlib.suppress(OSError):  # closed by somebody else: `_write` tells
                os.set_blocking(fd, False)
            self._unsent[fd] = memoryview(bytes(self._unsent.get(fd, b"")) + data)
            self._write(fd)

    def close_when_sent(self, fd: int) -> None:
        if fd in self._unsent:
            self._closing.add(fd)
        else:
            self.close(fd)

    def close(self, *fds: int) -> None:
        """Idempotent."""
        for fd in fds:
            if fd in self._fds:
                self._forget(fd)
                with contextlib.suppress(OSError):  # closed already, by somebody else: `check` tells
                    os.close(fd)

    def close_all(self) -> None:
        self.close(*self._fds.copy())
        self._actions.clear()
        if self._poll:
            self._loop.remove_reader(self._poll.fileno())
            self._poll.close()
            self._poll = None

    def _on_ready(self) -> None:
        assert self._poll is not None
        for fd, _ in self._poll.poll(0):
            if fd in self._actions:  # an action before it may have ended it
                self._actions[fd]()

    def _forget(self, fd: int) -> None:
        self.ignore(fd)
        self._takers.pop(fd, None)
        self._unsent.pop(fd, None)
        self._fds.remove(fd)
        self._closing.discard(fd)
        self._made.pop(fd, None)

    def _write(self, fd: int) -> None:
        try:
            written = os.write(fd, self._unsent[fd])
        except BlockingIOError:
            written = 0
        except BrokenPipeError:
            self.close(fd)
            return
        except OSError as error:
            self._fail(error)
            self.close(fd)
            return
        self._unsent[fd] = self._unsent[fd][written:]
        if self._unsent[fd]:
            if fd not in self._actions:
                try:
                    self.on_ready(fd, lambda: self._write(fd), select.EPOLLOUT)
                except OSError as error:
                    self._fail(error)
                    self.close(fd)
            return
        self.ignore(fd)
        del self._unsent[fd]
        if fd in self._closing:
            self.close(fd)

    def _fail(self, fault: object) -> None:
        self.fault = self.fault or f"a pipe failed ({fault})"


def _identity(fd: int) -> tuple[int, int]:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino


def _is(fd: int, made: tuple[int, int]) -> bool:
    try:
        return _identity(fd) == made
    except OSError:
        return False
