"""The two processes that walls begin with, and how they are ended for certain: the outer one, which is our child, and
its child, the first of those inside: bwrap and pid 1, or what stands for them in reduced isolation.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from posttrain.core.errors import SandboxError

_LAST_WAIT_S = 10.0
_SEIZE_ATTEMPTS, _SEIZE_PAUSE_S = 20, 0.05


class Tree:
    """Pidfds name the two, so no signal can reach a stranger. Killing the first ends all that is inside, and the outer
    one after it; `clean_up_s` is how long that one may take by itself. `command` gets one argument more, by which we
    know both. Raises `SandboxError` where it cannot be started."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        stdin: int,
        stdout: int,
        stderr: int,
        pass_fds: Sequence[int],
        environment: Mapping[str, str] | None = None,
        clean_up_s: float = 0.0,
    ) -> None:
        self._clean_up_s = clean_up_s
        self._mark = secrets.token_hex(16)
        command = [*command, self._mark]
        try:
            # Nothing of our environment for bwrap itself, and a session of its own, out of the reach of Ctrl-C.
            self._process = subprocess.Popen(
                command,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                env=environment or {},
                pass_fds=pass_fds,
                start_new_session=True,
            )
        except OSError as error:
            raise SandboxError(f"sandbox could not start {command[0]}: {error}") from error
        self.first = -1
        """Pidfd of the first; -1 while unknown."""
        try:
            self.outer = os.pidfd_open(self._process.pid)
        except OSError as error:
            self._end_by_number()
            raise SandboxError(f"sandbox could not watch {command[0]}: {error}") from error
        self.first_pid = 0
        """Of the first, as the host numbers it; 0 while unknown. Good for looking, not for signals."""
        self._told = b""

    def hear(self, data: bytes) -> None:
        """The outer one names the first, as one JSON object, before that may run anything."""
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
            _send(signal.SIGKILL, self.outer)

    def reap(self) -> None:
        """Once the outer one has ended, which it does when nobody is left inside."""
        self._process.wait()

    def end(self) -> None:
        """Kill whatever is left and wait for it, without an event loop, since the caller may be being cancelled; takes
        milliseconds. Raises `SandboxError` where something cannot be ended. Idempotent."""
        if self.outer < 0:
            return
        try:
            if self._process.returncode is None:
                self._await_death()
        except OSError:  # somebody else has closed a pidfd
            self._end_by_number()
        finally:
            for pidfd in (self.outer, self.first):
                with contextlib.suppress(OSError):
                    os.close(pidfd)
            self.outer = self.first = -1

    def _await_death(self) -> None:
        _send(signal.SIGKILL, self.first)
        if not self._clean_up_s or not has_ended(self.outer, self._clean_up_s):
            if self.first < 0:
                self._seize_for_certain()
            for pidfd in (self.first, self.outer):
                _send(signal.SIGKILL, pidfd)
                if pidfd >= 0 and not has_ended(pidfd, _LAST_WAIT_S):
                    raise SandboxError(
                        f"sandbox process {self._process.pid} was there {_LAST_WAIT_S:.0f} s after it was killed"
                    )
        self._process.wait()

    def _seize(self) -> None:
        """Stop the outer one during its setup and look for the first ourselves. Killing bwrap alone would not do: pid
        1, made but not yet told to go on, does not yet die with its parent, and would wait for ever."""
        _send(signal.SIGSTOP, self.outer)
        with contextlib.suppress(ChildProcessError):  # somebody else has reaped it
            os.waitid(os.P_PIDFD, self.outer, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
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
        """Without pidfds: the outer one is our child, which keeps its number until we wait for it, and stopped, it does
        not reap its own."""
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


def has_ended(pidfd: int, timeout_s: float) -> bool:
    """Blocks for so long at most."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


def _parent_of(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (ProcessLookupError, FileNotFoundError):
        return None
