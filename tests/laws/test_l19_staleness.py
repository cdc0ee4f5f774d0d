"""L19: staleness is computed from the tokens; the bound holds by admission, and nothing is dropped for it.

A run is played on the event loop with every delay drawn at random: how long a group samples (some tokens before and
some after new weights arrive), how long a step and a publish take, which groups fail.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.core.types import Boundary, Failure, Group, Message, Role, Split, StopReason, Task, Trajectory
from posttrain.schedule.slots import Slot, Slots
from posttrain.schedule.staleness import staleness

TASK = Task("a", (Message(Role.USER, "say 7"),), {}, Split.TRAIN, 0, 0, 1)


def trajectory(group_id: str, sibling: int, versions: list[int]) -> Trajectory:
    """One prompt token and the sampled ones; without any it is an attempt that failed."""
    length = 1 + len(versions)
    return Trajectory(
        trajectory_id=f"{group_id}/{sibling}",
        task=TASK,
        group_id=group_id,
        sibling=sibling,
        tokens=np.zeros(length, dtype=np.int32),
        sampled=np.array([False] + [True] * len(versions)),
        behavior_logprobs=np.zeros(length, dtype=np.float32),
        versions=np.array([-1, *versions], dtype=np.int32),
        turns=(),
        reply="",
        stop=StopReason.STOP if versions else StopReason.ABORTED,
        failure=None if versions else Failure(Boundary.ENGINE, "died"),
    )


@dataclass
class Play:
    """Feeder, rollers and trainer around the slots; delays are numbers of passes of the event loop."""

    slots: Slots
    steps: int
    rng: random.Random
    longest_roll: int = 40
    engine_version: int = 3
    trainer_version: int = 3
    rolled: list[str] = field(default_factory=list)
    consumed: list[tuple[Group, int]] = field(default_factory=list)

    async def passes(self, most: int) -> None:
        for _ in range(self.rng.randint(0, most)):
            await asyncio.sleep(0)

    async def feed(self, pool: str) -> None:
        async with asyncio.TaskGroup() as rollers:
            while True:
                slot = await self.slots.claim(pool)
                rollers.create_task(self.roll(slot))

    async def roll(self, slot: Slot) -> None:
        name, failed = f"g{slot.number}", self.rng.random() < 0.1
        versions: list[list[int]] = [[], []]
        for _ in range(0 if failed else self.rng.randint(1, 5)):
            for sibling in versions:
                sibling.append(self.engine_version)
            await self.passes(self.longest_roll // 5)
        self.rolled.append(name)
        slot.fill(Group(name, TASK, tuple(trajectory(name, n, sibling) for n, sibling in enumerate(versions))))

    async def train(self) -> None:
        for _ in range(self.steps):
            groups = await self.slots.take(self.slots.groups_per_step)
            self.consumed += [(group, self.trainer_version) for group in groups]
            await self.passes(10)
            self.trainer_version += 1
            await self.passes(10)
            self.engine_version = self.trainer_version
            await self.passes(3)
            self.slots.published(self.trainer_version)

    async def run(self, pools: tuple[str, ...]) -> None:
        feeders = [asyncio.ensure_future(self.feed(pool)) for pool in pools]
        trainer = asyncio.ensure_future(self.train())
        for _ in range(50_000):
            if trainer.done():
                break
            await asyncio.sleep(0)
        for task in (*feeders, trainer):
            task.cancel()
        await asyncio.gather(*feeders, trainer, return_exceptions=True)
        assert not trainer.cancelled(), f"the trainer still waits after {len(self.consumed)} groups"
        trainer.result()


def play(groups_per_step: int, bound: int, steps: int, seed: int, pools: dict[str, float] | None = None) -> Play:
    slots = Slots(groups_per_step, bound, pools) if pools else Slots(groups_per_step, bound)
    played = Play(slots, steps, random.Random(seed))
    asyncio.run(played.run(tuple(pools or ("default",))))
    return played


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 4), st.integers(0, 3), st.integers(1, 8), st.integers(0, 2**32))
def test_no_schedule_makes_a_token_older_than_the_bound_and_none_drops_a_group(
    groups_per_step: int, bound: int, steps: int, seed: int
) -> None:
    played = play(groups_per_step, bound, steps, seed)
    assert all(staleness([group], version) <= bound for group, version in played.consumed)
    assert [group.group_id for group, _ in played.consumed] == [f"g{n}" for n in range(steps * groups_per_step)]


@settings(deadline=None, max_examples=25)
@given(st.integers(2, 4), st.integers(0, 2), st.integers(1, 6), st.integers(0, 2**32))
def test_the_bound_holds_over_several_pools_too(groups_per_step: int, bound: int, steps: int, seed: int) -> None:
    played = play(groups_per_step, bound, steps, seed, {"code": 1.0, "text": 1.0})
    assert all(staleness([group], version) <= bound for group, version in played.consumed)
    assert [group.group_id for group, _ in played.consumed] == [f"g{n}" for n in range(steps * groups_per_step)]


@pytest.mark.parametrize("bound", [0, 1, 2])
def test_the_bound_is_reached_and_not_undercut(bound: int) -> None:
    """All slots are put to use: a fast roller runs ahead as far as it may."""
    ages = {staleness([group], version) for group, version in play(2, bound, 8, seed=1).consumed}
    assert max(ages) == bound


def test_long_and_failed_groups_are_learned_from_as_often_as_they_are_rolled() -> None:
    played = play(3, 2, 12, seed=5)
    consumed = [group.group_id for group, _ in played.consumed]
    assert sum(group.trajectories[0].failure is not None for group, _ in played.consumed) > 0
    assert played.rolled != sorted(played.rolled, key=lambda name: int(name[1:])), "groups finished out of order"
    assert set(played.rolled) >= set(consumed)
    assert len(set(consumed)) == len(consumed) == 36


def test_staleness_is_the_trainers_version_minus_that_of_the_oldest_sampled_token() -> None:
    young, old = (
        Group(name, TASK, (trajectory(name, 0, versions),)) for name, versions in (("g0", [6, 7]), ("g1", [7, 4, 7]))
    )
    assert staleness([young], 7) == 1
    assert staleness([young, old], 7) == 3


def test_staleness_of_a_group_that_sampled_nothing_is_0() -> None:
    failed = Group("g0", TASK, (trajectory("g0", 0, []),))
    assert staleness([failed], 7) == staleness([], 7) == 0
