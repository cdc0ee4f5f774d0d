"""Identical programs on identical inputs run once: for deterministic tasks only.

A domain whose functions read a clock, draw random numbers or keep state between calls must not use it. Siblings that
ask at the same time share one execution. What says nothing lasting about the program is not kept: infrastructure
errors, and wall-clock limits, which a busy neighbour can cause. Belongs to one event loop's thread.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace

from posttrain.core.protocols import Sandbox
from posttrain.core.sandboxing import CallResult, ResultClass, SandboxLimits
from posttrain.core.types import Json

_NOT_KEPT = (ResultClass.INFRASTRUCTURE_ERROR, ResultClass.TIME_LIMIT)


@dataclass
class _Flight:
    """One execution under way and how many wait for it."""

    task: asyncio.Task[CallResult]
    waiters: int = 0


@dataclass(eq=False)
class ExecutionCache:
    """Least recently used results go first."""

    max_entries: int = 4096
    executions: int = 0
    """Calls that reached a sandbox."""
    hits: int = 0
    """Calls answered by an earlier or a running execution."""
    _results: OrderedDict[str, CallResult] = field(default_factory=OrderedDict)
    _flights: dict[str, _Flight] = field(default_factory=dict)

    async def call(
        self, sandbox: Sandbox, source: str, function: str, inputs: Sequence[Sequence[Json]], limits: SandboxLimits
    ) -> CallResult:
        """As `Sandbox.call`, its errors included; an error reaches all who wait and is forgotten.

        Seconds are charged once, to the caller that started the execution.
        """
        key = _key(sandbox.tier, source, function, inputs, limits)
        if key in self._results:
            self.hits += 1
            self._results.move_to_end(key)
            return _free(self._results[key])
        flight = self._flights.get(key)
        if flight is not None:
            self.hits += 1
            return _free(await self._wait(key, flight))
        self.executions += 1
        self._flights[key] = _Flight(asyncio.ensure_future(sandbox.call(source, function, inputs, limits=limits)))
        return await self._wait(key, self._flights[key])

    async def _wait(self, key: str, flight: _Flight) -> CallResult:
        flight.waiters += 1
        try:
            # Shielded: a sibling that is cancelled does not take the execution away from the others.
            result = await asyncio.shield(flight.task)
        finally:
            flight.waiters -= 1
            if flight.waiters == 0:
                flight.task.cancel()
            if self._flights.get(key) is flight and (flight.waiters == 0 or flight.task.done()):
                del self._flights[key]
        self._keep(key, result)
        return result

    def _keep(self, key: str, result: CallResult) -> None:
        if result.run.result_class in _NOT_KEPT:
            return
        self._results[key] = result
        self._results.move_to_end(key)
        while len(self._results) > self.max_entries:
            self._results.popitem(last=False)


def _free(result: CallResult) -> CallResult:
    return replace(result, run=replace(result.run, wall_s=0.0, cpu_s=0.0))


def _key(tier: str, source: str, function: str, inputs: Sequence[Sequence[Json]], limits: SandboxLimits) -> str:
    content = json.dumps([str(tier), source, function, list(inputs), asdict(limits)])
    return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()
