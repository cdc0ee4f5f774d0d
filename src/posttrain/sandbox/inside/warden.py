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


def kill_all() -> bool:
    """End every process of this namespace but ourselves; False when there was none left, dead or alive."""
    if os.getpid() != 1:
        raise RuntimeError("there is no namespace here: it would end all processes of our user")
    try:
        os.kill(-1, _signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


class Ledger:
    """What the reaped processes used; `program` is the one whose wait status counts."""

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

    def reap_dead(self) -> None:
        while self.reap(os.WNOHANG):
            pass

    def wait(self, control: int, bell: Bell, said: int = -1) -> bool:
        """Until the program ends, or `said` is readable, or `control` is, which is true: the host wants us to stop, or
        it is gone."""
        poll = select.poll()
        poll.register(control, select.POLLIN | select.POLLRDHUP)
        for fd in (bell.read, *((said,) if said >= 0 else ())):
            poll.register(fd, select.POLLIN)
        while self.status is None:
            events = dict(poll.poll())
            if events.get(control, 0) & select.POLLRDHUP:
                os._exit(0)  # a socket that was shut: what we end for that must not be reported as the program's end
            if bell.read in events:
                bell.hush()
            self.reap_dead()
            if control in events:
                return True
            if said in events:
                break
        return False

    def end_all(self, kill_all: "Callable[[], bool]" = kill_all) -> None:
        """All processes but ourselves, where nobody says otherwise."""
        while kill_all() and self.reap(0):
            pass

    def report(self, box: str = BOX) -> bytes:
        """A line: wait status, CPU in µs, peak in KiB, processes that nobody waited for, and whether the disk of `box`
        is full."""
        disk = os.statvfs(box)
        no_files = disk.f_files > 0 and disk.f_ffree < _NEARLY_FULL_FILES
        full = no_files or disk.f_bavail * disk.f_frsize < _NEARLY_FULL_BYTES
        used = f"{int(self.cpu_s * 1e6)} {self.peak_kib} {self.num_unawaited}"
        return f"{self.status} {used} {int(full)}\n".encode()


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
    case. Returns the report."""
    ledger = Ledger(program)
    stopped = ledger.wait(control, bell)
    if stopped or not keep:
        ledger.end_all(kill_all)
    return ledger.report(box)


def reap_all() -> None:
    """What is dead already."""
    Ledger(0).reap_dead()


def end_all() -> None:
    """All processes of this namespace but ourselves."""
    Ledger(0).end_all()
