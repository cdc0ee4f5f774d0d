"""Pid 1 of a container: it forks the program behind fresh pipes, and passes on what comes through them as frames.

Only standard input, output and error lead out of a container, so everything shares our output; the program gets pipes
instead. It cannot write frames itself: nobody may trace us, so nobody may open our descriptors, and the kernel keeps
signals of its own namespace from the first process in it. When our input ends, the host wants us to stop or is gone:
everything is ended and reported.
"""

# Importing pathlib would cost as much as all the rest:
# ruff: noqa: PTH123

import os
import select

from posttrain.sandbox.inside.lockdown import hide_memory
from posttrain.sandbox.inside.program import become
from posttrain.sandbox.inside.warden import Bell, Ledger

TYPE_CHECKING = False  # importing typing would cost as much as all the rest
if TYPE_CHECKING:
    from posttrain.sandbox.job import Contained

BOX = "/tmp"
OUTPUT, ERRORS, ANSWER, REPORT = b"O", b"E", b"A", b"R"
HEAD_BYTES = 5
"""Of a frame: its kind, and the length of the rest in 4 bytes."""
PIECE_BYTES = 1 << 16
_INPUT, _ANSWER, _NUM_DESCRIPTORS = 3, 4, 5
_MEMORY_EVENTS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")


def start(contained: "Contained") -> None:
    """Does not return."""
    if os.getpid() != 1:  # we end all processes that we see
        os.write(2, b"the first process is number %d, not 1: it shares its processes with others\n" % os.getpid())
        os._exit(1)
    hide_memory()
    num_oom_kills = _num_oom_kills()
    stdin = _stdin(contained["stdin"])
    input_r, input_w = os.pipe()
    outlets = [os.pipe() for _ in range(3)]
    bell = Bell()
    program = os.fork()
    if program == 0:
        bell.silence()
        os.setsid()
        _, answer = outlets.pop()
        for number, fd in enumerate((stdin, outlets[0][1], outlets[1][1], input_r, answer)):
            os.dup2(fd, number)
        os.closerange(_NUM_DESCRIPTORS, 1 << 20)
        become(_INPUT, _ANSWER, BOX)
    for fd in (stdin, input_r, *(write for _, write in outlets)):
        os.close(fd)
    relay = _Relay(bell, input_w, {read: kind for (read, _), kind in zip(outlets, (OUTPUT, ERRORS, ANSWER))})  # noqa: B905
    ledger = Ledger(program)
    while ledger.status is None and relay.go_on():
        ledger.reap_dead()
    ledger.end_all()
    relay.finish()
    _write(REPORT, b"%d %s" % (_num_oom_kills() - num_oom_kills, ledger.report(BOX)))
    os._exit(0)


class _Relay:
    """Between the host and the program."""

    def __init__(self, bell: Bell, input: int, outlets: "dict[int, bytes]") -> None:
        self._bell, self._input, self._outlets = bell, input, outlets
        os.set_blocking(input, False)
        self._unsent = b""
        """What the program has not taken yet, which is never more than the host sends without an answer."""
        self._is_full = False
        """Of the pipe, which is then waited for."""
        self._poll = select.poll()
        for fd in (0, bell.read, *outlets):
            self._poll.register(fd, select.POLLIN)

    def go_on(self) -> bool:
        """Wait until something comes, and pass it on; False when our input has ended."""
        for fd, _ in self._poll.poll():
            if fd == self._bell.read:
                self._bell.hush()
            elif fd == self._input:
                self._send()
            elif fd:
                self._pass_on(fd)
            else:
                data = os.read(0, PIECE_BYTES)
                if not data:
                    return False
                self._unsent += data
                self._send()
        return True

    def finish(self) -> None:
        """Pass on what is left in the pipes, once nobody else is there to write."""
        for fd in list(self._outlets):
            while fd in self._outlets:
                self._pass_on(fd)

    def _pass_on(self, fd: int) -> None:
        data = os.read(fd, PIECE_BYTES)
        if data:
            _write(self._outlets[fd], data)
        else:
            self._poll.unregister(fd)
            del self._outlets[fd]

    def _send(self) -> None:
        try:
            self._unsent = self._unsent[os.write(self._input, self._unsent) :]
        except BlockingIOError:
            pass
        except BrokenPipeError:  # it does not want to know
            self._unsent = b""
        if self._unsent and not self._is_full:
            self._poll.register(self._input, select.POLLOUT)
        elif self._is_full and not self._unsent:
            self._poll.unregister(self._input)
        self._is_full = bool(self._unsent)


def _write(kind: bytes, body: bytes) -> None:
    data = kind + len(body).to_bytes(4, "big") + body
    while data:
        data = data[os.write(1, data) :]


def _stdin(text: str) -> int:
    """In memory and not on the disk, which is the program's."""
    if not text:
        return os.open(os.devnull, os.O_RDONLY)
    fd = os.memfd_create("stdin")
    data = text.encode(errors="replace")
    while data:
        data = data[os.write(fd, data) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _num_oom_kills() -> int:
    """Processes of the container that the kernel ended for the memory of all, by either version of control groups."""
    for path in _MEMORY_EVENTS:
        try:
            with open(path) as file:
                lines = file.read().splitlines()
        except OSError:
            continue
        return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
    return 0
