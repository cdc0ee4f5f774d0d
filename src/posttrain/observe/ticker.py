"""A thread that calls something every so often until it is stopped; the clock behind heartbeats and the watchdog.

What it calls must be quick and must not raise. It ends with the process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Ticker:
    """Running from construction to `stop`."""

    def __init__(self, name: str, every_s: float, tick: Callable[[], None]) -> None:
        self._every_s = every_s
        self._tick = tick
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """No tick begins after this returns."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._every_s):
            self._tick()
