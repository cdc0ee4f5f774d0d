"""The parent's side of one child process: start it, exchange one frame, notice its end, end it, leave nothing behind.

The child leads a process group of its own, which is ended as a whole. Nothing here knows what the frames say.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys

from posttrain.workers import wire
from posttrain.workers.spec import WorkerSpec

NUM_TAIL_LINES = 20
_NUM_TAIL_BYTES = 8192


class ChildProcess:
    """A running child. Whoever makes one calls `kill` and `reap` in the end, however it goes."""

    def __init__(self, spec: WorkerSpec) -> None:
        spec.log_path.parent.mkdir(parents=True, exist_ok=True)
        self._log_path = spec.log_path
        self._channel, theirs = socket.socketpair()
        self._channel.setblocking(False)
        # -P: modules in the current directory must not shadow those that the child imports before it has our path.
        command = [sys.executable, "-P", "-m", "posttrain.workers.child", str(theirs.fileno()), str(os.getpid())]
        with theirs, spec.log_path.open("ab") as log:
            self._log_start = log.tell()
            self._popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                env=spec.child_environment,
                start_new_session=True,  # a terminal's Ctrl-C is the parent's to handle
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def alive(self) -> bool:
        if self._popen.returncode is not None:
            return False
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    async def exchange(self, frame: wire.Frame, timeout_s: float | None) -> wire.Frame:
        """Raises EOFError or OSError where the child ended first, TimeoutError (after the others) where time did."""
        answer = asyncio.create_task(self._exchange(frame))
        ended = asyncio.create_task(self.ended())
        try:
            await asyncio.wait({answer, ended}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return answer.result()
            if ended.done():  # a grandchild may hold the channel open: its end alone would not be noticed
                raise EOFError("the process ended")
            raise TimeoutError
        finally:
            answer.cancel()
            ended.cancel()
            await asyncio.gather(answer, ended, return_exceptions=True)  # the channel is free of readers after this

    def close_requests(self) -> None:
        """Tell the child that no further request will come; an answer under way still arrives."""
        self._channel.shutdown(socket.SHUT_WR)

    def kill(self) -> None:
        """End the whole group at once. The child must not have been reaped: its number could be another's by now."""
        if self._popen.returncode is None:
            os.killpg(self.pid, signal.SIGKILL)

    async def ended(self) -> None:
        """Returns when the child has ended; does not reap it."""
        if self._popen.returncode is not None:
            return
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        pidfd = os.pidfd_open(self.pid)
        loop.add_reader(pidfd, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(pidfd)
            os.close(pidfd)

    async def reap(self) -> None:
        """Wait for the end, kill what is left of the group, and give back the process entry and the channel."""
        await self.ended()
        self.kill()
        self._popen.wait()
        self._channel.close()

    def exit_reason(self) -> str:
        """Of a reaped child."""
        code = self._popen.returncode
        if code is None or code >= 0:
            return f"exit code {code}"
        hint = " (the kernel kills so where memory runs out)" if -code == signal.SIGKILL else ""
        return f"signal {signal.Signals(-code).name}{hint}"

    def log_tail(self) -> str:
        """The last lines that this child, not an earlier one, wrote to its log."""
        with self._log_path.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start, size - _NUM_TAIL_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-NUM_TAIL_LINES:])

    async def _exchange(self, frame: wire.Frame) -> wire.Frame:
        await wire.send_async(self._channel, frame)
        return await wire.receive_async(self._channel)
