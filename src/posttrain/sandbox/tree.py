"""The two processes that bubblewrap makes, and how they are ended for certain: bwrap outside, and pid 1 inside."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from posttrain.core.errors import SandboxError

_LAST_WAIT_S = 10.0
_SEIZE_ATTEMPTS, _SEIZE_PAUSE_S = 20, 0.05


class Tree:
    """Pidfds name the two, so no signal can reach a stranger. Killing pid 1 ends all that is inside, and bwrap after
    it. `command` gets one argument more, by which we know both. Raises `SandboxError` where bwrap cannot be started."""

    def __init__(
        self, command: Sequence[str], *, stdin: int, stdout: int, stderr: int, pass_fds: Sequence[int]
    ) -> None:
        self._mark = secrets.token_hex(16)
        command = [*command, self._mark]
        try:
            # An empty environment for bwrap itself, and a session of its own, out of the reach of a terminal's Ctrl-C.
            self._process = subprocess.Popen(
                command, stdin=stdin, stdout=stdout, stderr=stderr, env={}, pass_fds=pass_fds, start_new_session=True
            )
        except OSError as error:
            raise SandboxError(f"sandbox could not start {command[0]}: {error}") from error
        self.first = -1
        """Pidfd of pid 1; -1 while unknown."""
        try:
            self.bwrap = os.pidfd_open(self._process.pid)
        except OSError as error:
            self._end_by_number()
            raise SandboxError(f"sandbox could not watch {command[0]}: {error}") from error
        self.first_pid = 0
        """Of pid 1, as the host numbers it; 0 while unknown. Good for looking, not for signals."""
        self._told = b""

    def hear(self, data: bytes) -> None:
        """Bwrap names pid 1, as one JSON object on its `--info-fd`, before it lets it run."""
        self._told += data
        if not self._told.rstrip().endswith(b"}"):
            return
        pid = json.loads(self._told)["child-pid"]
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            return  # setup failed, and it is gone already
        try:
            ours = _parent_of(pid) == self._process.pid
        except OSError:
            os.close(pidfd)
            raise
        if ours:
            self.first, self.first_pid = pidfd, pid
        else:  # gone, and its number is another process's now
            os.close(pidfd)

    def kill(self) -> None:
        if self.first >= 0:
            with contextlib.suppress(OSError):  # somebody else has closed it: `end` does without
                _send(signal.SIGKILL, self.first)
            return
        try:
            self._seize_for_certain()
        finally:
            _send(signal.SIGKILL, self.first)
            _send(signal.SIGKILL, self.bwrap)

    def reap(self) -> None:
        """Once bwrap has ended, which it does when pid 1 has, which ends when nobody else is in its namespace."""
        self._process.wait()

    def end(self) -> None:
        """Kill whatever is left and wait for it, without an event loop, since the caller may be being cancelled; takes
        milliseconds. Raises `SandboxError` where something cannot be ended. Idempotent."""
        if self.bwrap < 0:
            return
        try:
            if self._process.returncode is None:
                self._await_death()
        except OSError:  # somebody else has closed a pidfd
            self._end_by_number()
        finally:
            for pidfd in (self.bwrap, self.first):
                with contextlib.suppress(OSError):
                    os.close(pidfd)
            self.bwrap = self.first = -1

    def _await_death(self) -> None:
        if self.first < 0:
            self._seize_for_certain()
        for pidfd in (self.first, self.bwrap):
            if pidfd < 0:
                continue
            _send(signal.SIGKILL, pidfd)
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)
            if not poll.poll(_LAST_WAIT_S * 1000):
                raise SandboxError(
                    f"sandbox process {self._process.pid} was there {_LAST_WAIT_S:.0f} s after it was killed"
                )
        self._process.wait()

    def _seize(self) -> None:
        """Stop bwrap during its setup and look for pid 1 ourselves. Killing bwrap alone would not do: pid 1, made but
        not yet told to go on, does not yet die with its parent, and would wait for ever."""
        _send(signal.SIGSTOP, self.bwrap)
        with contextlib.suppress(ChildProcessError):  # somebody else has reaped it
            os.waitid(os.P_PIDFD, self.bwrap, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        for pid in self._children():
            self.first = os.pidfd_open(pid)

    def _seize_for_certain(self) -> None:
        """Looking takes descriptors, which may be scarce for a moment."""
        for attempt in range(_SEIZE_ATTEMPTS):
            try:
                self._seize()
            except OSError as error:
                if attempt == _SEIZE_ATTEMPTS - 1:
                    raise SandboxError(f"sandbox process {self._process.pid} could not be ended: {error}") from error
                time.sleep(_SEIZE_PAUSE_S)
            else:
                return

    def _end_by_number(self) -> None:
        """Without pidfds: bwrap is our child, which keeps its number until we wait for it, and stopped, it does not
        reap its own."""
        self._process.send_signal(signal.SIGSTOP)
        with contextlib.suppress(ChildProcessError):  # it had ended
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        children: list[int] = []
        with contextlib.suppress(OSError):
            children = self._children()
            for pid in children:
                os.kill(pid, signal.SIGKILL)
        self._process.send_signal(signal.SIGCONT if children else signal.SIGKILL)  # it ends when pid 1 has
        self._process.wait()

    def _children(self) -> list[int]:
        """Pid 1, and not what it has forked; by our mark, since somebody else may have ended bwrap, its parent."""
        marked = {int(path.name) for path in Path("/proc").glob("[0-9]*") if self._is_marked(path)}
        marked.discard(self._process.pid)
        return [pid for pid in marked if _parent_of(pid) not in marked]

    def _is_marked(self, process: Path) -> bool:
        try:
            return self._mark.encode() in (process / "cmdline").read_bytes()
        except (ProcessLookupError, FileNotFoundError):
            return False


def _send(number: signal.Signals, pidfd: int) -> None:
    """To a process that may be gone or, at -1, unknown."""
    if pidfd >= 0:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, number)


def _parent_of(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (ProcessLookupError, FileNotFoundError):
        return None
