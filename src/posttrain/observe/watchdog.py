"""Names the phase that is stuck: an observer in front of another one, with a thread that looks at the time.

When nothing moved for `stall_s` it writes the stacks of every thread and of every asyncio task to a file and says one
sentence; once for each stall. It ends nothing: a slow phase may be slow.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from posttrain.core.protocols import Observer
from posttrain.observe.run_state import RunState, duration
from posttrain.observe.ticker import Ticker


class Watchdog:
    """Forwards everything to `observer`; watches from construction to `close`, or as a context manager."""

    def __init__(
        self, observer: Observer, stacks: Path, stall_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        assert stall_s > 0, stall_s
        self._observer = observer
        self._stacks = stacks
        self._stall_s = stall_s
        self._clock = clock
        self._state = RunState(clock)
        self._lock = threading.Lock()
        self._moved = clock()
        self._barked = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ticker = Ticker("watchdog", min(1.0, stall_s / 4), self.look)

    def stage(self, name: str, total_steps: int | None, done: int = 0) -> None:
        self._state.begin_stage(name, total_steps, done)
        self._move()
        self._observer.stage(name, total_steps, done)

    def phase(self, name: str, total: int | None = None) -> None:
        self._state.begin_phase(name, total)
        self._move()
        self._observer.phase(name, total)

    def advance(self, amount: int = 1) -> None:
        self._state.phase_done += amount
        self._move()
        self._observer.advance(amount)

    def step(self, step: int, values: Mapping[str, float]) -> None:
        self._state.end_step(step, values)
        self._move()
        self._observer.step(step, values)

    def note(self, sentence: str) -> None:
        self._observer.note(sentence)

    def look(self) -> None:
        """Bark if nothing moved for too long and this stall was not barked at yet; the thread's call."""
        with self._lock:
            still_s = self._clock() - self._moved
            if still_s < self._stall_s or self._barked:
                return
            self._barked = True
        where = f" of {self._state.steps()}" if self._state.stage else ""
        sentence = f'nothing moved for {duration(still_s)} in the phase "{self._state.phase}"{where}'
        self._observer.note(f"{sentence}; {self._write_stacks(sentence)}")

    def close(self) -> None:
        self._ticker.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _move(self) -> None:
        with contextlib.suppress(RuntimeError):  # not called from an event loop
            self._loop = asyncio.get_running_loop()
        with self._lock:
            self._moved = self._clock()
            self._barked = False

    def _write_stacks(self, sentence: str) -> str:
        try:
            self._stacks.parent.mkdir(parents=True, exist_ok=True)
            with self._stacks.open("a", encoding="utf-8") as file:
                file.write(f"\n{datetime.now(UTC).isoformat(timespec='seconds')} {sentence}\n")
                file.flush()
                faulthandler.dump_traceback(file, all_threads=True)
                for task in asyncio.all_tasks(self._loop) if self._loop is not None else ():
                    task.print_stack(file=file)
        except OSError as error:
            return f"its stacks could not be written: {error}"
        return f"its stacks are in {self._stacks}"
