"""What a person sees while a run goes on: a live block on a terminal, plain lines elsewhere; all of it on one stream.

Nothing is silent for more than five seconds: a terminal is redrawn by a thread, plain output gets a heartbeat that
names the phase. `NO_COLOR` is honoured. A stream that is gone is no reason to stop a run. Nothing is recorded here.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Protocol, Self, TextIO

from posttrain.core.protocols import Observer
from posttrain.observe.run_state import RunState, duration, headline
from posttrain.observe.ticker import Ticker

HEARTBEAT_S = 4.5
"""After this long without a line, plain output says what is going on; checked every half second."""


class Progress(Observer, Protocol):
    """An observer that holds the screen or a thread until it is closed; entering changes nothing."""

    def close(self) -> None:
        """Leave the stream in order; later calls print nothing. A second call does nothing."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def progress(stream: TextIO, *, quiet: bool = False) -> Progress:
    """The right display for `stream` (standard error): live on a capable terminal, plain lines otherwise."""
    if quiet:
        return QuietProgress(stream)
    if stream.isatty():
        from posttrain.observe.live import LiveProgress, can_redraw

        if can_redraw(stream):
            return LiveProgress(stream)
    return PlainProgress(stream)


class _Lines:
    """What the displays without a screen share: whole lines, one at a time, from any thread."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.RLock()
        self._closed = False

    def close(self) -> None:
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _print(self, line: str) -> None:
        with self._lock, contextlib.suppress(OSError, ValueError):  # the reader of the stream may have left
            if not self._closed:
                self._stream.write(f"{line}\n")
                self._stream.flush()


class QuietProgress(_Lines):
    """Nothing but notes: what asks for a person's attention is not silenced."""

    def stage(self, name: str, total_steps: int | None, done: int = 0) -> None: ...

    def phase(self, name: str, total: int | None = None) -> None: ...

    def advance(self, amount: int = 1) -> None: ...

    def step(self, step: int, values: Mapping[str, float]) -> None: ...

    def note(self, sentence: str) -> None:
        self._print(sentence)


class PlainProgress(_Lines):
    """One line for each step, and a heartbeat whenever nothing else was printed."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self._clock = clock
        self._state = RunState(clock)
        self._last_line = clock()
        self._ticker = Ticker("progress", 0.5, self.heartbeat)

    def stage(self, name: str, total_steps: int | None, done: int = 0) -> None:
        with self._lock:
            self._state.begin_stage(name, total_steps, done)
            self._say(f"stage {name}" + (f", {total_steps} steps" if total_steps is not None else ""))

    def phase(self, name: str, total: int | None = None) -> None:
        with self._lock:
            self._state.begin_phase(name, total)

    def advance(self, amount: int = 1) -> None:
        with self._lock:
            self._state.phase_done += amount

    def step(self, step: int, values: Mapping[str, float]) -> None:
        with self._lock:
            self._state.end_step(step, values)
            left = self._state.left_s
            ending = [f"{duration(left)} left"] if left is not None else []
            self._say("  ".join([self._state.steps(), *headline(values), *ending]))

    def note(self, sentence: str) -> None:
        self._say(sentence)

    def heartbeat(self) -> None:
        """Say what is going on, if nothing was said for a while; the thread's call."""
        with self._lock:
            if self._clock() - self._last_line >= HEARTBEAT_S:
                where = self._state.steps()
                self._say(f"… {where}: {self._state.doing()}" if where else f"… {self._state.doing()}")

    def close(self) -> None:
        super().close()
        self._ticker.stop()

    def _say(self, line: str) -> None:
        with self._lock:
            self._last_line = self._clock()
            self._print(line)
