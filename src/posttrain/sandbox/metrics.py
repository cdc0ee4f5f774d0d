"""The record of what one sandbox did: counted where it happens, from any thread, read as `SandboxFigures`.

Percentiles are over the last executions only, so that a long run's figures show the present.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence

from posttrain.core.errors import SandboxError
from posttrain.core.sandbox_status import Percentiles, SandboxFigures
from posttrain.core.sandboxing import ResultClass

_WINDOW = 1024


class SandboxRecord:
    """Thread-safe."""

    def __init__(self, window: int = _WINDOW) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._ended: Counter[ResultClass] = Counter()
        self._seconds = {name: deque[float](maxlen=window) for name in ("wait", "run", "start")}

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Around standing in the line. Who gives up before it is their turn leaves no measurement."""
        with self._while("queued"), self._timed("wait"):
            yield

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Around a turn, whatever becomes of it."""
        with self._while("running"):
            started = time.monotonic()
            try:
                yield
            finally:
                self._measured("run", time.monotonic() - started)

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """Around the start of a slot, which exists when the block ends well."""
        with self._timed("start"):
            yield
        self._count("created")

    @contextlib.contextmanager
    def closing(self) -> Iterator[None]:
        """Around the end of a slot, which is gone or lost after the block; an error of it is a leak, and goes on."""
        try:
            yield
        except SandboxError:
            self._count("leaked_slots")
            raise
        except OSError:  # the kernel's, where a control group cannot be removed
            self._count("leaked_cgroups")
            raise
        finally:
            self._count("destroyed")

    def retried(self) -> None:
        self._count("retries")

    def ended(self, result_class: ResultClass) -> None:
        with self._lock:
            self._ended[result_class] += 1

    def figures(self, sessions: SandboxRecord | None = None) -> SandboxFigures:
        """`sessions`: the record of those that hold a slot for as long as they are open; their turns are in this."""
        own = self._now()
        if sessions is None:
            return own
        theirs = sessions._now()
        return SandboxFigures(
            **{
                **vars(own),
                "sessions": theirs.running,
                "slots_created": own.slots_created + theirs.slots_created,
                "slots_destroyed": own.slots_destroyed + theirs.slots_destroyed,
                "leaked_slots": own.leaked_slots + theirs.leaked_slots,
                "leaked_cgroups": own.leaked_cgroups + theirs.leaked_cgroups,
            }
        )

    def _now(self) -> SandboxFigures:
        with self._lock:
            counts, ended = Counter(self._counts), dict(self._ended)
            seconds = {name: sorted(window) for name, window in self._seconds.items()}
        return SandboxFigures(
            slots_created=counts["created"],
            slots_destroyed=counts["destroyed"],
            queued=counts["queued"],
            running=counts["running"],
            wait_s=percentiles(seconds["wait"]),
            run_s=percentiles(seconds["run"]),
            start_s=percentiles(seconds["start"]),
            ended=ended,
            retries=counts["retries"],
            leaked_slots=counts["leaked_slots"],
            leaked_cgroups=counts["leaked_cgroups"],
        )

    @contextlib.contextmanager
    def _while(self, name: str) -> Iterator[None]:
        self._count(name)
        try:
            yield
        finally:
            self._count(name, -1)

    @contextlib.contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        self._measured(name, time.monotonic() - started)

    def _measured(self, name: str, seconds: float) -> None:
        with self._lock:
            self._seconds[name].append(seconds)

    def _count(self, name: str, amount: int = 1) -> None:
        with self._lock:
            self._counts[name] += amount


def percentiles(ascending: Sequence[float]) -> Percentiles:
    """By nearest rank: the smallest measurement that so many percent do not exceed."""
    if not ascending:
        return Percentiles()
    ranks = (max(1, math.ceil(share * len(ascending) / 100)) for share in (50, 90, 99))
    return Percentiles(*(ascending[rank - 1] for rank in ranks))
