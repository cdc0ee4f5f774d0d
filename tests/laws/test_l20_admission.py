"""L20, its admission half: with bound zero nothing new starts until the weights have arrived."""

from __future__ import annotations

import asyncio

import pytest

from posttrain.core.types import Group, Message, Role, Split, Task
from posttrain.schedule.slots import Slots

POOL = "default"
ROLLING, FILLED, TAKEN, PUBLISHED = range(4)


def group(number: int) -> Group:
    task = Task("a", (Message(Role.USER, str(number)),), {}, Split.TRAIN, 0, number, 1)
    return Group(f"g{number}", task, ())


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def admitted_after(bound: int, phases: int) -> int:
    """Groups started by a feeder that never rests: `phases` is how far the first step of 2 groups has come."""
    slots, started = Slots(2, bound), []

    async def feed() -> None:
        while True:
            started.append(await slots.claim(POOL))

    feeder = asyncio.ensure_future(feed())
    await settle()
    if phases >= FILLED:
        for number, slot in enumerate(started[:2]):
            slot.fill(group(number))
        await settle()
    if phases >= TAKEN:
        await slots.take(2)
        await settle()
    if phases >= PUBLISHED:
        slots.published(1)
        await settle()
    feeder.cancel()
    return len(started)


@pytest.mark.parametrize("phases", [ROLLING, FILLED, TAKEN])
def test_bound_zero_admits_nothing_new_before_the_weights_arrive(phases: int) -> None:
    assert asyncio.run(admitted_after(0, phases)) == 2


def test_bound_zero_admits_exactly_the_next_step_once_they_have() -> None:
    assert asyncio.run(admitted_after(0, PUBLISHED)) == 4


@pytest.mark.parametrize("bound", [1, 3])
def test_a_positive_bound_admits_so_many_steps_ahead(bound: int) -> None:
    assert asyncio.run(admitted_after(bound, TAKEN)) == 2 * (bound + 1)
    assert asyncio.run(admitted_after(bound, PUBLISHED)) == 2 * (bound + 2)


def test_bound_zero_takes_the_groups_in_the_order_in_which_they_were_claimed() -> None:
    async def taken(finishing_order: list[int]) -> list[str]:
        slots = Slots(4, 0)
        claimed = [await slots.claim(POOL) for _ in range(4)]
        for number in finishing_order:
            claimed[number].fill(group(number))
        return [group.group_id for group in await slots.take(4)]

    assert asyncio.run(taken([2, 0, 3, 1])) == asyncio.run(taken([0, 1, 2, 3])) == ["g0", "g1", "g2", "g3"]
