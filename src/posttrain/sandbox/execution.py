"""One execution, from the first process to the last: start it, talk to it, read it, end it, and leave nothing behind.

The wall limit is a timer of the caller's event loop, which runs from the program's ready signal, and ends the work by
ending its whole process tree; it works in any thread. Leaving the coroutine early, cancelled or not, kills the tree
before it returns. What happened is returned as facts (`Ended`); `outcome.py` judges them.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import json
import os
import select
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from posttrain.core.errors import SandboxError
from posttrain.core.sandboxing import SandboxLimits
from posttrain.sandbox.bubblewrap import Host
from posttrain.sandbox.conversation import Conversation
from posttrain.sandbox.job import Job, job_file, rlimits, sealed_file, whole_cpu_s
from posttrain.sandbox.pipes import Pipes

SETUP_TIMEOUT_S = 30.0
_GRACE_S = 0.5
"""Between asking pid 1 to end everything and report, and ending pid 1."""
_LAST_WAIT_S = 10.0
_LATE_S = 0.05


class Stop(enum.Enum):
    """Why we ended an execution."""

    SETUP = "setup"
    TIME = "time"
    OUTPUT = "output"
    VIOLATION = "violation"


@dataclass(frozen=True)
class Order:
    """What to run: `argv`, or `function` of `source` where `argv` is empty."""

    limits: SandboxLimits
    argv: tuple[str, ...] = ()
    source: str = ""
    function: str = ""
    files: dict[str, str] = field(default_factory=dict)
    stdin: str = ""


@dataclass(frozen=True)
class Report:
    """Pid 1's account, over a pipe that no program has."""

    status: int
    """Of the program's first process, as of `os.wait`."""
    cpu_s: float
    peak_memory_mib: float
    num_unawaited: int
    """Processes that the program left to pid 1, dead or alive."""
    disk_full: bool


@dataclass(frozen=True)
class Ended:
    ready: bool
    stop: Stop | None
    report: Report | None
    """None where pid 1 did not live to write it."""
    stdout: bytes
    stderr: bytes
    truncated: bool
    wall_s: float


async def execute(host: Host, order: Order, conversation: Conversation | None = None) -> Ended:
    """Run `order` to its end. Raises `SandboxError` where a process can neither be started nor ended."""
    running = _Running(host, order, conversation)
    try:
        running.begin()
        await running.over.wait()
        return running.ended()
    finally:
        running.abandon()


class _Running:
    def __init__(self, host: Host, order: Order, conversation: Conversation | None) -> None:
        self.over = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._pipes = Pipes(self._loop)
        self._host, self._order, self._conversation = host, order, conversation
        self._process: subprocess.Popen[bytes] | None = None
        self._bwrap = self._first = -1
        """Pidfds of bwrap and of pid 1 inside; -1 while unknown."""
        self._control = self._input = self._info = -1
        self._timer: asyncio.TimerHandle | None = None
        self._stop: Stop | None = None
        self._ready_at = self._over_at = 0.0
        self._told = self._reported = b""
        self._output = {"stdout": b"", "stderr": b""}
        self._truncated = False

    def begin(self) -> None:
        pipes, order = self._pipes, self._order
        stdout, stdout_w = pipes.make()
        stderr, stderr_w = pipes.make()
        self._info, info_w = pipes.make()
        report, report_w = pipes.make()
        answer, answer_w = pipes.make()
        control_r, self._control = pipes.make()
        input_r, self._input = pipes.make()
        job = Job(
            uid=self._host.user(),
            argv=list(order.argv),
            source=order.source,
            function=order.function,
            files=order.files,
            cpu_s=whole_cpu_s(order.limits),
            rlimits=rlimits(order.limits),
            control=control_r,
            report=report_w,
            input=input_r,
            answer=answer_w,
        )
        job_fd = pipes.own(job_file(job))
        filter_fd = pipes.own(sealed_file("posttrain-seccomp", self._host.seccomp))
        stdin = pipes.own(sealed_file("posttrain-stdin", order.stdin.encode(errors="replace")))
        inside = (job_fd, filter_fd, info_w, report_w, answer_w, control_r, input_r)
        command = self._host.command(
            job_fd=job_fd, info_fd=info_w, seccomp_fd=filter_fd, disk_mib=order.limits.disk_mib
        )
        try:
            # An empty environment for bwrap itself, and a session of its own, out of the reach of a terminal's Ctrl-C.
            self._process = subprocess.Popen(
                command, stdin=stdin, stdout=stdout_w, stderr=stderr_w, env={}, pass_fds=inside, start_new_session=True
            )
        except OSError as error:
            raise SandboxError(f"sandbox could not start {command[0]}: {error}") from error
        pipes.close(stdin, stdout_w, stderr_w, *inside)
        self._bwrap = os.pidfd_open(self._process.pid)
        self._loop.add_reader(self._bwrap, self._on_bwrap_end)
        pipes.on_data(stdout, lambda data: self._on_output("stdout", data))
        pipes.on_data(stderr, lambda data: self._on_output("stderr", data))
        pipes.on_data(self._info, self._on_info)
        pipes.on_data(report, self._on_report)
        pipes.on_data(answer, self._on_answer)
        self._arm(SETUP_TIMEOUT_S, Stop.SETUP)
        self._ask()

    def ended(self) -> Ended:
        return Ended(
            ready=self._ready_at > 0,
            stop=self._stop,
            report=_parse_report(self._reported),
            stdout=self._output["stdout"],
            stderr=self._output["stderr"],
            truncated=self._truncated,
            wall_s=self._over_at - self._ready_at if self._ready_at else 0.0,
        )

    def abandon(self) -> None:
        """Kill whatever is left, wait for it, close everything; after a normal end only the closing is left."""
        if self._timer:
            self._timer.cancel()
        try:
            if self._process and self._process.returncode is None:
                self._await_death(self._process)
        finally:
            self._pipes.close_all()
            if self._bwrap >= 0:
                self._loop.remove_reader(self._bwrap)
            for pidfd in (self._bwrap, self._first):
                if pidfd >= 0:
                    os.close(pidfd)

    # ── what is heard from inside ─────────────────────────────────────────────────────────────────────────────

    def _on_info(self, data: bytes) -> None:
        """Bwrap names pid 1, as one JSON object, before it lets it run."""
        assert self._process is not None
        self._told += data
        if not self._told.rstrip().endswith(b"}"):
            return
        pid = json.loads(self._told)["child-pid"]
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            return  # setup failed, and it is gone already
        if _parent_of(pid) == self._process.pid:
            self._first = pidfd
        else:  # gone, and its number is another process's now
            os.close(pidfd)

    def _on_report(self, data: bytes) -> None:
        self._reported += data
        if not self._ready_at:
            self._ready_at = time.monotonic()
            if not self._stop:
                self._arm(self._order.limits.wall_s, Stop.TIME)
        if self._reported.endswith(b"\n"):
            self._over_at = self._over_at or time.monotonic()
            self._kill_after(_GRACE_S)

    def _on_output(self, stream: str, data: bytes) -> None:
        room = self._order.limits.output_kib * 1024 - sum(map(len, self._output.values()))
        self._output[stream] += data[:room]
        if len(data) > room:
            self._truncated = True
            self._end(Stop.OUTPUT)

    def _on_answer(self, data: bytes) -> None:
        if self._conversation is None or self._stop:
            return
        if self._conversation.feed(data):
            self._ask()
        if self._conversation.violation:
            self._end(Stop.VIOLATION)

    def _ask(self) -> None:
        message = self._conversation.next_message() if self._conversation else None
        if message is None:
            self._pipes.close(self._input)
        else:
            self._pipes.send(self._input, message)

    # ── ending it ─────────────────────────────────────────────────────────────────────────────────────────────

    def _arm(self, delay_s: float, stop: Stop) -> None:
        if self._timer:
            self._timer.cancel()
        due = self._loop.time() + delay_s
        self._timer = self._loop.call_at(due, self._on_time, due, stop)

    def _on_time(self, due: float, stop: Stop) -> None:
        late_s = self._loop.time() - due
        if late_s > _LATE_S:  # the event loop was held up; the program may have been waiting for us all that time
            self._arm(late_s, stop)
        else:
            self._end(stop)

    def _end(self, stop: Stop) -> None:
        """Ask pid 1 to kill all others and report; it notices that the control pipe closes."""
        if self._stop or self._over_at:
            self._stop = self._stop or stop
            return
        self._stop = stop
        self._over_at = time.monotonic()
        self._pipes.close(self._control)
        self._kill_after(_GRACE_S if self._ready_at else 0.0)

    def _kill_after(self, delay_s: float) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = self._loop.call_later(delay_s, self._kill)

    def _kill(self) -> None:
        """Pid 1, whose death takes all others with it and which bwrap outlives."""
        if self._first < 0:
            self._seize()
            _send(signal.SIGKILL, self._first)
            _send(signal.SIGKILL, self._bwrap)
        else:
            _send(signal.SIGKILL, self._first)

    def _seize(self) -> None:
        """Stop bwrap during its setup and look for pid 1 ourselves. Killing bwrap alone would not do: pid 1, made but
        not yet told to go on, does not yet die with its parent, and would wait for ever."""
        assert self._process is not None
        _send(signal.SIGSTOP, self._bwrap)
        with contextlib.suppress(ChildProcessError):  # somebody else has reaped it
            os.waitid(os.P_PIDFD, self._bwrap, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        for path in Path("/proc").glob("[0-9]*"):
            if _parent_of(int(path.name)) == self._process.pid:
                self._first = os.pidfd_open(int(path.name))

    def _on_bwrap_end(self) -> None:
        """Bwrap ends when pid 1 has ended, and pid 1 when there is nobody else in its namespace."""
        assert self._process is not None
        self._loop.remove_reader(self._bwrap)
        self._process.wait()
        self._pipes.drain()
        self._over_at = self._over_at or time.monotonic()
        self.over.set()

    def _await_death(self, process: subprocess.Popen[bytes]) -> None:
        """Without the event loop, since the caller may be being cancelled; takes milliseconds."""
        if self._first < 0:
            self._seize()
        for pidfd in (self._first, self._bwrap):
            if pidfd < 0:
                continue
            _send(signal.SIGKILL, pidfd)
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)
            if not poll.poll(_LAST_WAIT_S * 1000):
                raise SandboxError(f"sandbox process {process.pid} was there {_LAST_WAIT_S:.0f} s after it was killed")
        process.wait()


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


def _parse_report(data: bytes) -> Report | None:
    """After the ready byte: wait status, CPU in µs, peak in KiB, processes not waited for, whether the disk is full."""
    if not data.endswith(b"\n"):
        return None
    status, cpu_us, peak_kib, num_unawaited, full = map(int, data[1:].split())
    return Report(status, cpu_us / 1e6, peak_kib / 1024, num_unawaited, bool(full))
