"""Bounded staleness by admission: a group starts only where the bound will still hold when it is learned from.

    FEED                              ROLL                       TRAIN
    await claim(pool) ─▶ Slot ─────▶ slot.fill(group) ────────▶ await take(n) ─▶ step ─▶ publish ─▶ published(version)
      waits for a free slot            never waits                waits for the n          │
      of its pool                      wakes TRAIN                oldest slots to fill     └─ frees what was taken,
      ▲                                                                                       wakes FEED
      └────────────────────────────────────────────────────────────────────────────────────────────┘

There are (max_staleness + 1) × groups_per_step slots. A slot stays charged until weights that learned from its group
have arrived. So when the group with claim number c starts, all but the last max_staleness of the steps before its own,
step c // groups_per_step, have been published, and its oldest token is at most max_staleness versions old when the
trainer takes it (law L19). Nothing finished is dropped, and a group whose attempts failed is filled like any other.
With bound zero nothing starts before the weights have arrived: the synchronous run (law L20). Groups are taken by
claim number, whatever the order in which they finished.

All in one event loop, with one trainer. A pool's feeders are served in order of arrival; with several pools each needs
a feeder of its own that goes on claiming, or the trainer waits for slots that nobody fills. It rolls, learns and
publishes nothing.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from posttrain.core.errors import ConfigError
from posttrain.core.types import Group

ONE_POOL: Mapping[str, float] = MappingProxyType({"default": 1.0})


@dataclass(eq=False)
class Slot:
    """Room for one group, from its start until weights that learned from it have arrived."""

    number: int
    """Of the claim: 0, 1, 2 …"""
    pool: str
    _slots: Slots
    _group: Group | None = None

    def fill(self, group: Group) -> None:
        """Hand over the finished group; once."""
        assert self._group is None, f"slot {self.number} was filled twice"
        self._group = group
        self._slots._wake()


class Slots:
    """Admission of groups, in pools with a share each of all slots."""

    def __init__(self, groups_per_step: int, max_staleness: int, pools: Mapping[str, float] = ONE_POOL) -> None:
        if groups_per_step < 1 or max_staleness < 0:
            raise ConfigError("slots need at least 1 group a step and a staleness bound of at least 0")
        self.groups_per_step = groups_per_step
        self.capacity = (max_staleness + 1) * groups_per_step
        self._free = _divide(self.capacity, pools)
        self._turns = {pool: asyncio.Lock() for pool in pools}
        self._claimed = 0
        self._waiting: deque[Slot] = deque()  # claimed and not yet taken, by number
        self._taken: list[Slot] = []
        self._version: int | None = None
        self._sleepers: list[asyncio.Future[None]] = []

    def free(self, pool: str) -> int:
        """Groups of the pool that may start now."""
        return self._free[pool]

    async def claim(self, pool: str) -> Slot:
        """Wait for a free slot of the pool, first come first served. A cancelled claim takes nothing."""
        async with self._turns[pool]:
            await self._until(lambda: self._free[pool] > 0)
            self._free[pool] -= 1
            slot = Slot(self._claimed, pool, self)
            self._claimed += 1
            self._waiting.append(slot)
            return slot

    async def take(self, n: int) -> list[Group]:
        """Wait until the `n` oldest claims are filled and take them, by claim number; their slots stay charged.

        `n` is `groups_per_step`: with fewer a step, versions would outrun the bound; more might never fill. A
        cancelled take takes nothing.
        """
        if n != self.groups_per_step:
            raise ValueError(f"a step takes {self.groups_per_step} groups, not {n}: the staleness bound counts on it")
        await self._until(lambda: len(self._oldest(n)) == n)
        groups = self._oldest(n)
        self._taken += [self._waiting.popleft() for _ in groups]
        return groups

    def published(self, version: int) -> None:
        """Weights that learned from everything taken so far have arrived as `version`: free those slots."""
        if self._version is not None and version <= self._version:
            raise ValueError(f"version {version} cannot be published after version {self._version}")
        self._version = version
        for slot in self._taken:
            self._free[slot.pool] += 1
        self._taken.clear()
        self._wake()

    def _oldest(self, n: int) -> list[Group]:
        """Groups of the `n` oldest claims, up to the first one that is not filled."""
        groups: list[Group] = []
        for slot in self._waiting:
            if slot._group is None or len(groups) == n:
                break
            groups.append(slot._group)
        return groups

    async def _until(self, ready: Callable[[], bool]) -> None:
        # Nothing is awaited between the last look and the caller's change of state, so no lock guards it.
        while not ready():
            sleeper = asyncio.get_running_loop().create_future()
            self._sleepers.append(sleeper)
            await sleeper

    def _wake(self) -> None:
        for sleeper in self._sleepers:
            if not sleeper.done():  # a cancelled wait leaves its future behind, done
                sleeper.set_result(None)
        self._sleepers.clear()


def _divide(capacity: int, pools: Mapping[str, float]) -> dict[str, int]:
    """Whole slots by share, the largest remainders rounded up; ties by name."""
    if not pools or any(not (math.isfinite(share) and share > 0.0) for share in pools.values()):
        raise ConfigError(f"every pool needs a share above 0, not {dict(pools)}")
    total = math.fsum(pools.values())
    exact = {pool: capacity * share / total for pool, share in pools.items()}
    whole = {pool: math.floor(slots) for pool, slots in exact.items()}
    by_remainder = sorted(pools, key=lambda pool: (whole[pool] - exact[pool], pool))
    for pool in by_remainder[: capacity - sum(whole.values())]:
        whole[pool] += 1
    if empty := sorted(pool for pool, slots in whole.items() if slots == 0):
        raise ConfigError(
            f"{capacity} slots leave none for pool {', '.join(empty)}: raise groups_per_step or its share"
        )
    return whole
