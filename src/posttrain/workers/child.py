"""The child's side of a worker: builds the part and answers calls one at a time, until its parent goes.

Started as `python -m posttrain.workers.child FD PARENT_PID`. Thread and allocator settings come with the
environment: this file imports no numerical library, and writes to its log only what the part itself prints.
"""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import importlib
import inspect
import os
import signal
import socket
import sys
from typing import Any

from posttrain.workers import heap, wire
from posttrain.workers.messages import Build, Raised, Request, Returned

_PR_SET_PDEATHSIG = 1


class Server:
    """Holds the part. One event loop for all calls, so that an async part may keep objects that belong to it."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._part: Any = None

    def answer(self, frame: wire.Frame) -> wire.Frame:
        try:
            return wire.encode(Returned(self._do(wire.decode(frame))))
        except (Exception, asyncio.CancelledError) as error:  # whatever the part raises is the caller's to judge
            return wire.encode(Raised.of(error))

    def close(self) -> None:
        """Close the part, where it has a `close`."""
        close = getattr(self._part, "close", None)
        if close is not None:
            self._finish(close())

    def _do(self, request: Request) -> Any:
        if isinstance(request, Build):
            self._part = _build(request)
            return None
        return self._finish(getattr(self._part, request.method)(*request.args, **request.kwargs))

    def _finish(self, result: Any) -> Any:
        return self._runner.run(result) if inspect.iscoroutine(result) else result


def main() -> None:
    channel_fd, parent_pid = int(sys.argv[1]), int(sys.argv[2])
    _die_with(parent_pid)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    with socket.socket(fileno=channel_fd) as channel, asyncio.Runner() as runner:
        channel.set_inheritable(False)  # a process that the part starts must not keep it open
        server = Server(runner)
        while _serve_one(channel, server):
            pass
        server.close()


def _serve_one(channel: socket.socket, server: Server) -> bool:
    """False where the parent has closed the channel. Frames are local here: an idle worker holds no payload."""
    frame = wire.receive(channel)
    if frame is None:
        return False
    wire.send(channel, server.answer(frame))
    del frame
    heap.give_back()  # the caller has its answer and need not wait for this
    return True


def _build(request: Build) -> Any:
    sys.path.extend(entry for entry in request.import_path if entry not in sys.path)
    module, _, attribute = request.factory.partition(":")
    return getattr(importlib.import_module(module), attribute)(**request.config)


def _die_with(parent_pid: int) -> None:
    """Have the kernel kill this process when its parent ends, even within a call that never comes back."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the kernel refused to tie this worker to its parent")
    if os.getppid() != parent_pid:  # it ended before the kernel was asked
        os._exit(1)


if __name__ == "__main__":
    main()
