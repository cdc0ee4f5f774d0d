"""Identical workers behind one `call`: each call goes to an idle one, callers wait their turn.

A worker that died, ran out of time or had its call cancelled is replaced when its place is needed next. Workers here
keep nothing between calls that a caller may rely on: which of them answers is not said.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque
from typing import Any

from posttrain.core.errors import WorkerDiedError
from posttrain.workers.spec import WorkerSpec
from posttrain.workers.worker import Worker

MAX_RETRIES = 2
"""When this many more workers have died of a call, the call is taken to be what kills them."""


@dataclasses.dataclass(frozen=True)
class PoolCounts:
    """Since the pool began, until it was closed."""

    started: int = 0
    killed: int = 0
    """Ended by a deadline or a cancelled call."""
    died: int = 0
    """Ended on their own."""


class WorkerPool:
    """Made by `start`, ended by `close`."""

    def __init__(self, spec: WorkerSpec, size: int, start_timeout_s: float) -> None:
        if size < 1:
            raise ValueError(f"worker pool {spec.name}: it needs at least 1 worker, not {size}")
        self._name = spec.name
        self._start_timeout_s = start_timeout_s
        self._places = asyncio.Semaphore(size)  # first come, first served
        self._vacant = [_numbered(spec, number) for number in reversed(range(size))]
        self._idle: deque[Worker] = deque()
        self._busy: set[Worker] = set()
        self._closed = False
        self.counts = PoolCounts()

    @classmethod
    async def start(cls, spec: WorkerSpec, size: int, *, timeout_s: float = 300.0) -> WorkerPool:
        """Start `size` workers, all or none; each has its number in its name and in the name of its log.

        `timeout_s` is for the start of one worker, now and where it is replaced. Raises what `Worker.start` raises.
        """
        pool = cls(spec, size, timeout_s)
        try:
            started = await asyncio.gather(*(pool._take() for _ in range(size)), return_exceptions=True)
            for one in started:
                if isinstance(one, BaseException):
                    raise one
                await pool._give_back(one)
        except BaseException:
            await pool.close()
            raise
        return pool

    async def call(
        self, method: str, *args: Any, timeout_s: float | None = None, retry: bool = False, **kwargs: Any
    ) -> Any:
        """As `Worker.call`. Waiting for an idle worker and starting one is not charged to `timeout_s`.

        With `retry` the call is made again, at most `MAX_RETRIES` times, where the worker died of it; a call that
        ran out of time is never made again. Raises `WorkerDiedError` where the pool is closed.
        """
        retries_left = MAX_RETRIES if retry else 0
        async with self._places:
            while True:
                worker = await self._take()
                try:
                    return await worker.call(method, *args, timeout_s=timeout_s, **kwargs)
                except WorkerDiedError:
                    if worker.alive or retries_left == 0:
                        raise
                    retries_left -= 1
                finally:
                    await self._give_back(worker)

    async def close(self) -> None:
        """Stop all workers, busy ones after a grace; calls under way and waiting then raise `WorkerDiedError`."""
        self._closed = True
        await asyncio.gather(*(worker.stop() for worker in [*self._idle, *self._busy]))

    async def _take(self) -> Worker:
        self._require_open()
        while self._idle:
            worker = self._idle.popleft()
            if worker.alive:
                self._busy.add(worker)
                return worker
            await self._bury(worker)
        spec = self._vacant.pop()
        try:
            worker = await Worker.start(spec, timeout_s=self._start_timeout_s)
        except BaseException:
            self._vacant.append(spec)
            raise
        self.counts = dataclasses.replace(self.counts, started=self.counts.started + 1)
        self._busy.add(worker)
        if self._closed:  # while it started
            await worker.stop()
        return worker

    async def _give_back(self, worker: Worker) -> None:
        self._busy.discard(worker)
        if worker.alive:
            self._idle.append(worker)
        else:
            await self._bury(worker)

    async def _bury(self, worker: Worker) -> None:
        self._vacant.append(worker.spec)
        if not self._closed:
            killed = int(worker.killed)
            self.counts = dataclasses.replace(
                self.counts, killed=self.counts.killed + killed, died=self.counts.died + 1 - killed
            )
        await worker.kill()  # it is dead: this gives back what it held here

    def _require_open(self) -> None:
        if self._closed:
            raise WorkerDiedError(f"worker pool {self._name} is closed")


def _numbered(spec: WorkerSpec, number: int) -> WorkerSpec:
    log_path = spec.log_path.with_stem(f"{spec.log_path.stem}-{number}")
    return dataclasses.replace(spec, name=f"{spec.name}-{number}", log_path=log_path)
