"""The server's side of a session's interpreter: a child that stays, and is handed the descriptors of cell after cell.

How a cell goes is told to the host by the server, on a pipe that the guest's code never has; of what the interpreter
itself says, one byte is read, and only while its cell runs, as each cell has another socket for it. Between two cells
it is stopped, and alone (`census.py`). What a step leaves has to be ended without it: beside an interpreter a step has
a namespace of its own (`Warden`).
"""

import _signal  # type: ignore[import-not-found]  # `signal` builds enums, which costs as much as starting Python
import _socket
import array
import os
import select
import time

from posttrain.sandbox.inside.census import Census
from posttrain.sandbox.inside.kernel import check, libc
from posttrain.sandbox.inside.program import READY
from posttrain.sandbox.inside.warden import Bell, Ledger, end_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

FRESH, STALE = b"f", b"s"
"""Said behind `READY`: whether the interpreter knows of no earlier cell."""
DONE, ENDED = b"d", b"e"
"""Said at the end of a cell: that it came to its end, and that its interpreter ended with it."""
DONE_WELL, RAISED = b"0", b"1"
"""What the interpreter says at the end of a cell."""
_EXITED_WITH_1 = 1 << 8
"""A wait status."""
_CLONE_NEWPID = 0x20000000
for _name in ("setns", "unshare"):
    getattr(libc, _name)  # looked up before any fork


class Cells:
    """Of one slot. Raises `OSError` for what ends the server."""

    def __init__(self) -> None:
        self.link = -1
        """Where an interpreter gets its cells; in itself alone."""
        self._pid = 0
        self._pidfd = -1
        self._ours: _socket.socket | None = None
        self._said: _socket.socket | None = None
        self._answer = -1
        self._census = Census(0)

    @property
    def alive(self) -> bool:
        if self._pidfd < 0:
            return False
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return not poll.poll(0)

    def take(self, descriptors: "Sequence[int]") -> int:
        """The interpreter that the next cell is given to: its number, or 0 in it itself, where it is a new one."""
        self._answer = os.dup(descriptors[-1])
        return self._pid if self.alive and self._hand_over(descriptors) else self._fork(descriptors)

    def watch_over(self, program: int, control: int, bell: Bell, *, keep: bool) -> bytes:
        """Until the cell is over, or `program` is, which is the interpreter, or the host wants us to stop, which ends
        all. Returns the report; its wait status is that of a program that does what the cell did. With `keep` what the
        cell has started goes on, and the interpreter too."""
        assert self._said
        ledger = Ledger(program)
        before_s = self._cpu_s()
        stopped = ledger.wait(control, bell, self._said.fileno())
        said = b"" if stopped or ledger.status is not None else self._said.recv(1)
        if not said and not stopped:  # it has closed it, and can but end
            stopped = ledger.wait(control, bell)
        if said:
            ledger.status = 0 if said == DONE_WELL else _EXITED_WITH_1
            ledger.cpu_s += self._cpu_s() - before_s
            if not keep and not self._census.end_others(self._pidfd):
                end_all()
            os.write(self._answer, DONE)
        else:
            if stopped or not keep:
                ledger.end_all()
            ledger.cpu_s -= before_s
        if not self.alive:
            self.end()
            os.write(self._answer, ENDED)
        self._said.close()
        os.close(self._answer)
        return ledger.report()

    def end(self) -> None:
        """The interpreter; what it has started goes on. Idempotent."""
        if self._pidfd >= 0:
            if self.alive:
                _signal.pidfd_send_signal(self._pidfd, _signal.SIGKILL)
                os.waitpid(self._pid, 0)
            os.close(self._pidfd)
        if self._ours:
            self._ours.close()
        self._pid, self._pidfd, self._ours = 0, -1, None

    def _hand_over(self, descriptors: "Sequence[int]") -> bool:
        """False where it would not take it."""
        *own, answer = descriptors
        _signal.pidfd_send_signal(self._pidfd, _signal.SIGCONT)  # first, lest it undo that a cell stops itself
        try:
            self._send(own)
        except OSError:
            return False
        os.write(answer, READY + STALE)  # on its behalf, as we could not rely on it
        return True

    def _fork(self, descriptors: "Sequence[int]") -> int:
        self.end()
        self._ours, link = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        self._pid = os.fork()
        if self._pid == 0:
            self.link = link.detach()
            return 0
        link.close()
        self._pidfd = os.pidfd_open(self._pid)
        self._census = Census(self._pid)
        self._send(descriptors)
        return self._pid

    def _send(self, descriptors: "Sequence[int]") -> None:
        assert self._ours
        self._said, said = _socket.socketpair()
        passed = array.array("i", [*descriptors, said.fileno()])
        flags = _socket.MSG_DONTWAIT | _socket.MSG_NOSIGNAL
        self._ours.sendmsg([b"cell"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, passed)], flags)
        said.close()

    def _cpu_s(self) -> float:
        """Of the interpreter so far, by the clock that the kernel keeps for a process."""
        try:
            return time.clock_gettime(~self._pid << 3 | 2)
        except OSError:
            return 0.0


class Warden:
    """Watches over a program in a namespace of its own, whose pid 1 it is, so that the program's processes alone end
    with it: the kernel lets nobody there outlive pid 1. Raises `OSError` for what ends the server."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_CLOEXEC)

    def fork(self) -> bool:
        """True in the warden, which then does all that the server would."""
        ours = os.pidfd_open(os.getpid())
        check(libc.unshare(_CLONE_NEWPID))
        self._pid = os.fork()
        if self._pid:
            check(libc.setns(ours, _CLONE_NEWPID))  # for those who are forked from now on
        os.close(ours)
        return self._pid == 0

    def tell(self, report: bytes) -> None:
        """In the warden. Does not return."""
        os.write(self._write, report)
        os._exit(0)

    def report(self) -> bytes:
        """In the server, when all is over."""
        os.close(self._write)
        status = os.waitpid(self._pid, 0)[1]
        report = os.read(self._read, 4096)
        os.close(self._read)
        if not report:
            if not os.WIFSIGNALED(status):
                raise OSError(f"the warden of a step exited with {status >> 8}")
            ledger = Ledger(self._pid)  # the kernel, for the memory of all, or a guest that may signal it
            ledger.status = status
            report = ledger.report()
        return report
