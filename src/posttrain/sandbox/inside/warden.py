"""What pid 1 of a sandbox does while a program runs and after it: reap, count, end everything, and say how it went."""

import _signal  # type: ignore[import-not-found]  # `signal` builds enums, which costs as much as starting Python
import os
import select

from posttrain.sandbox.inside.program import BOX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_NEARLY_FULL_BYTES = 1 << 16
_NEARLY_FULL_FILES = 4


class Bell:
    """Rings when a child ends. Made before the fork; in the child, `silence` first of all."""

    def __init__(self) -> None:
        self.read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)  # Python's own handler would let the program interrupt us
        _signal.signal(_signal.SIGCHLD, lambda *_: None)
        _signal.set_wakeup_fd(self._write)

    def hush(self) -> None:
        os.read(self.read, 4096)

    def silence(self) -> None:
        _signal.set_wakeup_fd(-1)
        _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
        os.close(self.read)
        os.close(self._write)


class _Ledger:
    """What the reaped processes used."""

    def __init__(self, program: int) -> None:
        self.program = program
        self.status: int | None = None
        self.cpu_s = 0.0
        self.peak_kib = 0
        self.num_unawaited = 0

    def reap(self, flags: int) -> bool:
        """Reap one process; False where there is none (yet)."""
        try:
            pid, status, usage = os.wait4(-1, flags)
        except ChildProcessError:
            return False
        if pid == 0:
            return False
        self.cpu_s += usage.ru_utime + usage.ru_stime
        self.peak_kib = max(self.peak_kib, usage.ru_maxrss)
        if pid == self.program:
            self.status = status
        else:
            self.num_unawaited += 1
        return True


def kill_all() -> bool:
    """End every process of this namespace but ourselves; False when there was none left, dead or alive."""
    try:
        os.kill(-1, _signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def watch_over(
    program: int,
    control: int,
    bell: Bell,
    *,
    box: str = BOX,
    kill_all: "Callable[[], bool]" = kill_all,
    keep: bool = False,
) -> bytes:
    """Wait until `program` ends or `control` has something to say, then `kill_all`; with `keep` only in the latter
    case. The report is a line: wait status, CPU in µs, peak in KiB, processes that nobody waited for, and whether the
    disk of `box` is full."""
    ledger = _Ledger(program)
    poll = select.poll()
    poll.register(bell.read, select.POLLIN)
    poll.register(control, select.POLLIN | select.POLLRDHUP)
    stopped = False
    while ledger.status is None and not stopped:
        events = dict(poll.poll())
        if events.get(control, 0) & select.POLLRDHUP:
            os._exit(0)  # a socket that was shut: what we end for that must not be reported as the program's own end
        stopped = control in events  # the host wants us to stop, or it is gone
        if bell.read in events:
            bell.hush()
        while ledger.reap(os.WNOHANG):
            pass
    while (stopped or not keep) and kill_all() and ledger.reap(0):
        pass
    disk = os.statvfs(box)
    no_files = disk.f_files > 0 and disk.f_ffree < _NEARLY_FULL_FILES
    full = no_files or disk.f_bavail * disk.f_frsize < _NEARLY_FULL_BYTES
    return f"{ledger.status} {int(ledger.cpu_s * 1e6)} {ledger.peak_kib} {ledger.num_unawaited} {int(full)}\n".encode()


def reap_all() -> None:
    """What is dead already."""
    ledger = _Ledger(0)
    while ledger.reap(os.WNOHANG):
        pass


def end_all() -> None:
    """All processes of this namespace but ourselves."""
    ledger = _Ledger(0)
    while kill_all() and ledger.reap(0):
        pass
