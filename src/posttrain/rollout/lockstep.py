"""Turns many episodes' requests into few batches whose content does not depend on timing.

A batch leaves when every live episode of the wave waits for tokens: what is in it is then a function of the episodes
alone, not of which environment answered first. An engine whose arithmetic depends on the batch (every bf16 engine)
so gives the same tokens when a step is run again, which exact resume needs (law L21). It does not sample.
"""

from __future__ import annotations

import asyncio

from posttrain.core.protocols import GenerateRequest, Generation, RolloutEngine


class Lockstep:
    """One wave: `num_episodes` episodes that each call `generate` any number of times and `leave` once."""

    def __init__(self, engine: RolloutEngine, num_episodes: int) -> None:
        self._engine = engine
        self._live = num_episodes
        self._waiting: dict[str, tuple[GenerateRequest, asyncio.Future[Generation]]] = {}
        self._batches: set[asyncio.Task[None]] = set()

    async def generate(self, request: GenerateRequest) -> Generation:
        """Waits for the wave's next batch. Raises what the engine raised for that batch."""
        future: asyncio.Future[Generation] = asyncio.get_running_loop().create_future()
        assert request.request_id not in self._waiting, f"request {request.request_id} twice in one batch"
        self._waiting[request.request_id] = (request, future)
        self._send_if_complete()
        return await future

    def leave(self) -> None:
        """An episode needs no more tokens; the others need not wait for it."""
        self._live -= 1
        self._send_if_complete()

    def _send_if_complete(self) -> None:
        if self._waiting and len(self._waiting) == self._live:
            batch = [self._waiting[key] for key in sorted(self._waiting)]
            self._waiting = {}
            task = asyncio.ensure_future(self._send(batch))
            self._batches.add(task)
            task.add_done_callback(self._batches.discard)

    async def _send(self, batch: list[tuple[GenerateRequest, asyncio.Future[Generation]]]) -> None:
        try:
            generations = await self._engine.generate([request for request, _ in batch])
        except BaseException as error:  # whatever it was belongs to the episodes that wait
            for _, future in batch:
                if not future.done():
                    future.set_exception(error if isinstance(error, Exception) else asyncio.CancelledError())
            if not isinstance(error, Exception):
                raise
            return
        for (_, future), generation in zip(batch, generations, strict=True):
            if not future.done():
                future.set_result(generation)
