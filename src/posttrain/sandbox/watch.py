"""One execution as it is seen from outside: its output, its answers, its clock, and why we ended it if we did.

The wall limit is a timer of the caller's event loop, which runs from the program's ready byte. How the program was
started and how it is ended is another's affair (`execution.py` for bubblewrap each time, `turn.py` for a slot,
`container_execution.py` for a container).
"""

from __future__ import annotations

import asyncio
import enum
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from posttrain.core.sandboxing import SandboxLimits
from posttrain.sandbox.inside.program import READY
from posttrain.sandbox.pipes import Pipes

SETUP_TIMEOUT_S = 30.0
_LATE_S = 0.05


class Stop(enum.Enum):
    """Why we ended an execution."""

    SETUP = "setup"
    TIME = "time"
    OUTPUT = "output"
    VIOLATION = "violation"


@dataclass(frozen=True)
class Report:
    """Pid 1's account, on a way that no program has."""

    status: int
    """Of the program's first process, as of `os.wait`."""
    cpu_s: float
    peak_memory_mib: float
    num_unawaited: int
    """Processes that the program left to pid 1, dead or alive."""
    disk_full: bool
    out_of_memory: bool = False
    """The kernel ended one of its processes for the memory of all."""


@dataclass(frozen=True)
class Ended:
    ready: bool
    stop: Stop | None
    report: Report | None
    """None where pid 1 did not live to write it."""
    lost_to_memory: bool
    """The kernel ended pid 1 for the memory of all."""
    stdout: bytes
    stderr: bytes
    said: str
    """By those who were to start the program."""
    truncated: bool
    wall_s: float
    fault: str = ""
    """What failed of ours while it ran, so that nothing else here can be trusted; empty where nothing did."""


class Talk(Protocol):
    """What is said to the program and what it answers; `conversation.py` has the one with a candidate."""

    @property
    def violation(self) -> str:
        """A sentence; empty while all is well."""
        ...

    def next_message(self) -> bytes | None: ...

    def feed(self, data: bytes) -> bool:
        """Whether the next message is due."""
        ...


class Watch:
    """`end` is called once, when the execution is to be ended and had not ended by itself."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: SandboxLimits,
        talk: Talk | None,
        end: Callable[[Stop], None],
    ) -> None:
        self.pipes = Pipes(loop)
        self.stop: Stop | None = None
        self._loop, self._limits, self._talk, self._on_end = loop, limits, talk, end
        self._timer: asyncio.TimerHandle | None = None
        self._ready_at = self._over_at = 0.0
        self._output = {"stdout": b"", "stderr": b""}
        self._truncated = False
        self._input = self._answer = -1
        self._last = b""
        self._fault = ""

    def begin(self, *, job: bytes, stdout: int, stderr: int, input: int, answer: int) -> None:
        """Descriptors of ours, owned by `self.pipes`. `job` goes before the inputs."""
        self._answer = answer
        self.pipes.on_data(stdout, lambda data: self.take_output("stdout", data))
        self.pipes.on_data(stderr, lambda data: self.take_output("stderr", data))
        self.pipes.on_data(answer, self.take_answer)
        self.begin_relayed(job=job, input=input)

    def begin_relayed(self, *, job: bytes, input: int, last: bytes = b"") -> None:
        """The caller brings what the program says, by `take_output` and `take_answer`. `last` is sent, where it is
        given, instead of closing `input` when there are no more inputs."""
        self._input, self._last = input, last
        self._arm(SETUP_TIMEOUT_S, Stop.SETUP)
        self._ask(job)

    def take_output(self, stream: Literal["stdout", "stderr"], data: bytes) -> None:
        room = self._limits.output_kib * 1024 - sum(map(len, self._output.values()))
        self._output[stream] += data[:room]
        if len(data) > room:
            self._truncated = True
            self._end(Stop.OUTPUT)

    def take_answer(self, data: bytes) -> None:
        if not self.ready:  # the first byte is our own code's, before the program can write any
            self._ready_at = time.monotonic()
            data = data[len(READY) :]
            if not self.stop and not self._over_at:
                self._arm(self._limits.wall_s, Stop.TIME)
        if not data or self._talk is None or self.stop:
            return
        if self._talk.feed(data):
            self._ask()
        if self._talk.violation:
            self._end(Stop.VIOLATION)

    @property
    def ready(self) -> bool:
        return self._ready_at > 0

    def over(self) -> None:
        """The program has ended; the first time counts."""
        self.pipes.read_all(self._answer)  # it may have become ready in the same moment
        self._over_at = self._over_at or time.monotonic()

    def blame_us(self, fault: str) -> None:
        """Whatever is seen of the program from now on is not its doing; the first fault counts."""
        self._fault = self._fault or fault

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """In place of any timer that is set."""
        self.disarm()
        self._timer = self._loop.call_later(delay_s, action)

    def disarm(self) -> None:
        if self._timer:
            self._timer.cancel()

    def ended(self, report: Report | None, said: str = "", *, lost_to_memory: bool = False) -> Ended:
        """`said`: what those who were to start the program complained of."""
        return Ended(
            ready=self.ready,
            stop=self.stop,
            report=report,
            lost_to_memory=lost_to_memory,
            stdout=self._output["stdout"],
            stderr=self._output["stderr"],
            said=said,
            truncated=self._truncated,
            wall_s=self._over_at - self._ready_at if self.ready else 0.0,
            fault=self._fault or self.pipes.fault,
        )

    def _ask(self, before: bytes = b"") -> None:
        message = self._talk.next_message() if self._talk else None
        data = before + (self._last if message is None else message)
        if data:
            self.pipes.send(self._input, data)
        if message is None and not self._last:
            self.pipes.close_when_sent(self._input)

    def _arm(self, delay_s: float, stop: Stop) -> None:
        self.disarm()
        due = self._loop.time() + delay_s
        self._timer = self._loop.call_at(due, self._on_time, due, stop)

    def _on_time(self, due: float, stop: Stop) -> None:
        late_s = self._loop.time() - due
        if late_s > _LATE_S:  # the event loop was held up; the program may have been waiting for us all that time
            self._arm(late_s, stop)
        else:
            self._end(stop)

    def _end(self, stop: Stop) -> None:
        if self.stop or self._over_at:
            self.stop = self.stop or stop
            return
        self.stop = stop
        self.over()
        self._on_end(stop)


def parse_report(data: bytes, *, out_of_memory: bool = False) -> Report | None:
    """Wait status, CPU in µs, peak in KiB, processes not waited for, whether the disk is full; None for no whole
    line."""
    if not data.endswith(b"\n"):
        return None
    status, cpu_us, peak_kib, num_unawaited, full = map(int, data.split())
    return Report(status, cpu_us / 1e6, peak_kib / 1024, num_unawaited, bool(full), out_of_memory)
