"""Slots: who waits, what wakes them, and what a cancelled wait leaves behind."""

from __future__ import annotations

import asyncio

import pytest

from posttrain.core.errors import ConfigError
from posttrain.core.types import Group, Message, Role, Split, Task
from posttrain.schedule.slots import Slot, Slots

POOL = "default"


def group(number: int) -> Group:
    """Without a scored trajectory, as a group that only failed."""
    task = Task("a", (Message(Role.USER, str(number)),), {}, Split.TRAIN, 0, number, 1)
    return Group(f"g{number}", task, ())


async def settle() -> None:
    """Let everything that can go on go on."""
    for _ in range(20):
        await asyncio.sleep(0)


async def claim_all(slots: Slots, pool: str = POOL) -> list[Slot]:
    return [await slots.claim(pool) for _ in range(slots.free(pool))]


def ids(groups: list[Group]) -> list[str]:
    return [group.group_id for group in groups]


def test_there_are_as_many_slots_as_the_bound_admits() -> None:
    async def scenario() -> None:
        slots = Slots(3, 2)
        assert len(await claim_all(slots)) == slots.capacity == 9
        waiting = asyncio.ensure_future(slots.claim(POOL))
        await settle()
        assert not waiting.done()
        waiting.cancel()

    asyncio.run(scenario())


def test_slot_stays_charged_until_weights_arrive() -> None:
    async def scenario() -> None:
        slots = Slots(2, 0)
        for number, slot in enumerate(await claim_all(slots)):
            slot.fill(group(number))
        assert slots.free(POOL) == 0
        await slots.take(2)
        assert slots.free(POOL) == 0
        slots.published(1)
        assert slots.free(POOL) == 2

    asyncio.run(scenario())


def test_groups_are_taken_by_claim_number_whatever_finished_first() -> None:
    async def scenario() -> None:
        slots = Slots(2, 1)
        claimed = await claim_all(slots)
        taking = asyncio.ensure_future(slots.take(2))
        for number in (3, 2, 1):
            claimed[number].fill(group(number))
            await settle()
            assert not taking.done()
        claimed[0].fill(group(0))
        assert ids(await taking) == ["g0", "g1"]
        assert ids(await slots.take(2)) == ["g2", "g3"]

    asyncio.run(scenario())


def test_a_group_that_only_failed_is_taken_like_any_other() -> None:
    async def scenario() -> None:
        slots = Slots(1, 0)
        (await slots.claim(POOL)).fill(group(0))
        assert await slots.take(1) == [group(0)]

    asyncio.run(scenario())


def test_claims_are_served_in_order_of_arrival() -> None:
    async def scenario() -> None:
        slots = Slots(1, 0)
        (await slots.claim(POOL)).fill(group(0))
        waiting = [asyncio.ensure_future(slots.claim(POOL)) for _ in range(3)]
        await settle()
        for turn in range(3):
            await slots.take(1)
            latecomer = asyncio.ensure_future(slots.claim(POOL))  # runs before those that `published` wakes
            slots.published(turn + 1)
            await settle()
            assert [claim.done() for claim in waiting] == [number <= turn for number in range(3)]
            assert not latecomer.done()
            latecomer.cancel()
            waiting[turn].result().fill(group(turn))

    asyncio.run(scenario())


def test_a_cancelled_claim_takes_nothing_and_blocks_nobody() -> None:
    async def scenario() -> None:
        slots = Slots(1, 0)
        (await slots.claim(POOL)).fill(group(0))
        first, second = (asyncio.ensure_future(slots.claim(POOL)) for _ in range(2))
        await settle()
        await slots.take(1)
        slots.published(1)  # the first is woken, and cancelled before it runs
        first.cancel()
        await settle()
        assert first.cancelled()
        assert second.result().number == 1
        assert slots.free(POOL) == 0

    asyncio.run(scenario())


def test_a_cancelled_take_takes_nothing() -> None:
    async def scenario() -> None:
        slots = Slots(1, 0)
        slot = await slots.claim(POOL)
        taking = asyncio.ensure_future(slots.take(1))
        await settle()
        slot.fill(group(0))  # wakes it, and it is cancelled before it runs
        taking.cancel()
        await settle()
        assert taking.cancelled()
        assert ids(await slots.take(1)) == ["g0"]

    asyncio.run(scenario())


def test_pools_have_slots_of_their_own() -> None:
    async def scenario() -> None:
        slots = Slots(4, 1, {"code": 1.0, "text": 3.0})
        assert (slots.free("code"), slots.free("text")) == (2, 6)
        await claim_all(slots, "code")
        waiting = asyncio.ensure_future(slots.claim("code"))
        await settle()
        assert not waiting.done()
        assert (await slots.claim("text")).pool == "text"
        waiting.cancel()

    asyncio.run(scenario())


@pytest.mark.parametrize("shares", [{"a": 1.0, "b": 1.0, "c": 1.0}, {"a": 0.1, "b": 0.45, "c": 0.45}])
def test_pools_divide_all_slots_and_no_more(shares: dict[str, float]) -> None:
    slots = Slots(8, 0, shares)
    assert sum(slots.free(pool) for pool in shares) == 8


@pytest.mark.parametrize(
    ("groups_per_step", "max_staleness", "pools", "sentence"),
    [
        (0, 0, {"a": 1.0}, "at least 1 group a step"),
        (1, -1, {"a": 1.0}, "staleness bound of at least 0"),
        (1, 0, {}, "needs a share above 0"),
        (1, 0, {"a": 0.0}, "needs a share above 0"),
        (2, 0, {"a": 1.0, "b": 1.0, "c": 1.0}, "2 slots leave none for pool c"),
    ],
)
def test_slots_that_cannot_be_divided_are_refused(
    groups_per_step: int, max_staleness: int, pools: dict[str, float], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        Slots(groups_per_step, max_staleness, pools)


def test_a_step_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="a step takes 4 groups, not 2"):
        asyncio.run(Slots(4, 0).take(2))


def test_versions_only_go_up() -> None:
    slots = Slots(1, 0)
    slots.published(7)
    with pytest.raises(ValueError, match="version 7 cannot be published after version 7"):
        slots.published(7)


def test_a_slot_is_filled_once() -> None:
    async def scenario() -> None:
        slot = await Slots(1, 0).claim(POOL)
        slot.fill(group(0))
        with pytest.raises(AssertionError, match="slot 0 was filled twice"):
            slot.fill(group(1))

    asyncio.run(scenario())
