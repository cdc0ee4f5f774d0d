"""One rollout engine out of several: a batch is split by group, so that siblings share their prompt's computation.

The split is a function of the batch alone (law L21). It computes no token itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from posttrain.core.errors import EngineError
from posttrain.core.protocols import EngineCapabilities, GenerateRequest, Generation, PauseMode
from posttrain.core.registry import build
from posttrain.fleet.host import Host


def make_engine(spec: dict[str, Any]) -> Any:
    """The engine behind `{"name": …, options…}`: what an engine worker is started with."""
    return build("engine", spec)


class EnginePool:
    """Several hosted engines that act as one `RolloutEngine`."""

    def __init__(self, hosts: Sequence[Host]) -> None:
        assert hosts, "an engine pool needs an engine"
        self._hosts = list(hosts)

    async def generate(
        self, requests: Sequence[GenerateRequest], *, timeout_s: float | None = None
    ) -> list[Generation]:
        """As the protocol. An engine in a process of its own that misses its deadline is ended with its process, and
        the pool with it; one in this process keeps the deadline itself, between two steps, and stays."""
        shares = split_by_group(requests, len(self._hosts))
        answers = await asyncio.gather(
            *(
                host.call("generate", share, timeout_s=timeout_s)
                for host, share in zip(self._hosts, shares, strict=True)
                if share
            )
        )
        by_id = {generation.request_id: generation for answer in answers for generation in answer}
        return [by_id[request.request_id] for request in requests]

    async def publish(self, version: int, weights: Path) -> None:
        await self._all("publish", version, weights)

    async def pause(self, mode: PauseMode) -> None:
        await self._all("pause", mode)

    async def resume(self) -> None:
        await self._all("resume")

    async def fingerprint(self) -> str:
        """Raises `EngineError` where the engines do not hold the same weights."""
        prints = set(await self._all("fingerprint"))
        if len(prints) != 1:
            raise EngineError(f"{len(self._hosts)} engines hold {len(prints)} different sets of weights")
        return str(prints.pop())

    async def capabilities(self) -> EngineCapabilities:
        capabilities: EngineCapabilities = await self._hosts[0].call("capabilities")
        return capabilities

    async def close(self) -> None:
        await asyncio.gather(*(host.stop() for host in self._hosts))

    async def _all(self, method: str, *args: Any) -> list[Any]:
        return await asyncio.gather(*(host.call(method, *args) for host in self._hosts))


def split_by_group(requests: Sequence[GenerateRequest], parts: int) -> list[list[GenerateRequest]]:
    """Each group goes whole to the part with the fewest tokens to sample so far, in the order of the requests."""
    groups: dict[str, list[GenerateRequest]] = {}
    for request in requests:
        groups.setdefault(request.group or request.request_id, []).append(request)
    shares: list[list[GenerateRequest]] = [[] for _ in range(parts)]
    loads = [0] * parts
    for members in groups.values():
        part = loads.index(min(loads))
        shares[part].extend(members)
        loads[part] += sum(request.max_new_tokens for request in members)
    return shares
