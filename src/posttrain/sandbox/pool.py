"""The slots of one sandbox: who may run now, on which slot, and what becomes of it. Thread-safe, for any event loop.

So many executions run at once; the others stand in a `Line`, whose waiting is the caller's and never the program's.
A slot is started when none that is ready fits, kept for the next program of its profile, and given up when its server
failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from posttrain.core.errors import SandboxError
from posttrain.sandbox.line import Line
from posttrain.sandbox.metrics import SandboxRecord
from posttrain.sandbox.profile import Profile
from posttrain.sandbox.slot import Slot

_STARTERS = ThreadPoolExecutor(max_workers=8, thread_name_prefix="posttrain-slot")


@dataclass(eq=False)
class _Waiter:
    loop: asyncio.AbstractEventLoop
    turn: asyncio.Future[None]
    passed_over: bool = False
    """Its loop was closed when its turn came; the turn is another's now."""


class Pool:
    """`start` blocks and may raise `SandboxError`. Ready slots of all profiles together are at most twice `size`."""

    def __init__(self, size: int, start: Callable[[Profile], Slot]) -> None:
        self._size, self._start = size, start
        self.record = SandboxRecord()
        self._lock = threading.Lock()
        self._line: Line[_Waiter] = Line()
        self._num_running = 0
        self._ready: list[Slot] = []
        """The longest unused first."""
        self._slots: set[Slot] = set()
        self._starting: set[Future[Slot]] = set()
        self._closed = False
        weakref.finalize(self, _close_all, self._slots, self.record)

    @contextlib.asynccontextmanager
    async def slot(self, profile: Profile, caller: str = "", priority: int = 0) -> AsyncIterator[Slot]:
        """Wait for a turn, and have a slot for as long as the block lasts. Raises `SandboxError` where none can be
        started and where the pool is closed."""
        async with self.turn(caller, priority):
            if self._closed:
                raise SandboxError("the sandbox was closed while this waited for its turn")
            slot = await self._ready_or_new(profile)
            try:
                yield slot
            finally:
                self._take_back(slot)

    @contextlib.asynccontextmanager
    async def turn(self, caller: str = "", priority: int = 0) -> AsyncIterator[None]:
        """To run something elsewhere, as one of those that run at once."""
        with self.record.waiting():
            await self._turn(caller, priority)
        try:
            with self.record.running():
                yield
        finally:
            self._next()

    async def close(self) -> None:
        """Nobody gets a slot any more; what runs may end first."""
        with self._lock:
            self._closed = True
        while self._num_running or self._starting:
            await asyncio.sleep(0.01)
        _close_all(self._slots, self.record)
        self._ready.clear()

    # ── turns ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _turn(self, caller: str, priority: int) -> None:
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._closed:
                raise SandboxError("the sandbox is closed")
            if self._num_running < self._size:
                self._num_running += 1
                return
            waiter = _Waiter(loop, loop.create_future())
            self._line.add(waiter, caller, priority)
        try:
            await waiter.turn
        except BaseException:
            with self._lock:
                has_no_turn = self._line.remove(waiter) or waiter.passed_over
            if not has_no_turn:
                self._next()
            raise

    def _next(self) -> None:
        """Hand the turn on."""
        while True:
            with self._lock:
                waiter = self._line.pop()
                if waiter is None:
                    self._num_running -= 1
                    return
            try:
                waiter.loop.call_soon_threadsafe(_let_go, waiter.turn)
            except RuntimeError:  # its event loop is closed, and nobody waits there any more
                waiter.passed_over = True
                continue
            return

    # ── slots ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _ready_or_new(self, profile: Profile) -> Slot:
        while True:
            with self._lock:
                slot = next((slot for slot in reversed(self._ready) if slot.profile == profile), None)
                if slot is None:
                    break
                self._ready.remove(slot)
            if slot.alive:
                return slot
            self._give_up(slot)
        try:
            starting = _STARTERS.submit(self._new, profile)
        except RuntimeError as error:
            raise SandboxError(f"sandbox could not start a thread to make a slot: {error}") from error
        self._starting.add(starting)
        try:
            slot = await asyncio.shield(asyncio.wrap_future(starting))
        except BaseException:  # also where the event loop is closed and the coroutine thrown away
            starting.add_done_callback(self._keep)
            raise
        self._starting.discard(starting)
        return slot

    def _new(self, profile: Profile) -> Slot:
        self._make_room(1)
        with self.record.starting():
            slot = self._start(profile)
        with self._lock:
            self._slots.add(slot)
        return slot

    def _keep(self, starting: Future[Slot]) -> None:
        """A slot that was started for somebody who is gone."""
        if not starting.exception():
            self._take_back(starting.result())
        self._starting.discard(starting)

    def _take_back(self, slot: Slot) -> None:
        if self._closed or not slot.alive:
            self._give_up(slot)
            return
        with self._lock:
            self._ready.append(slot)
        self._make_room(0)

    def _make_room(self, num_more: int) -> None:
        while True:
            with self._lock:
                if not self._ready or len(self._slots) + num_more <= 2 * self._size:
                    return
                superfluous = self._ready.pop(0)
            self._give_up(superfluous)

    def _give_up(self, slot: Slot) -> None:
        with self._lock:
            self._slots.discard(slot)
        try:
            with self.record.closing():
                slot.close()
        except OSError as error:
            raise SandboxError(f"a slot of the sandbox could not be closed: {error}") from error


def _let_go(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)


def _close_all(slots: set[Slot], record: SandboxRecord) -> None:
    """All of them; then the first error is raised."""
    errors: list[Exception] = []
    while slots:
        try:
            with record.closing():
                slots.pop().close()
        except (OSError, SandboxError) as error:
            errors.append(error)
    if errors:
        raise SandboxError(f"a slot of the sandbox could not be closed: {errors[0]}") from errors[0]
