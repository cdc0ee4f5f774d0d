"""Who has a slot: so many at once, no turn is lost whatever becomes of those who wait, and no slot is forgotten."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from posttrain.core.errors import ConfigError, SandboxError
from posttrain.sandbox.pool import Pool
from posttrain.sandbox.profile import Profile
from posttrain.sandbox.slot import Slot

PYTHON, OTHER = Profile("python"), Profile("other")
_PATIENCE_S = 60.0


class StandInSlot(Slot):
    """Nothing is behind it."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.healthy, self.open, self.in_use = True, True, False

    @property
    def alive(self) -> bool:
        return self.healthy and self.open

    def close(self) -> None:
        self.open = False


class Factory:
    """Starts slots, and remembers all of them. `gate` holds every start up while it is not set."""

    def __init__(self) -> None:
        self.started: list[StandInSlot] = []
        self.gate = threading.Event()
        self.gate.set()
        self.num_asked = 0
        self.failures: list[Exception] = []
        """To be raised by the next starts."""
        self.lock = threading.Lock()

    def __call__(self, profile: Profile) -> StandInSlot:
        with self.lock:
            self.num_asked += 1
            failure = self.failures.pop(0) if self.failures else None
        self.gate.wait(_PATIENCE_S)
        if failure:
            raise failure
        slot = StandInSlot(profile)
        with self.lock:
            self.started.append(slot)
        return slot

    @property
    def num_open(self) -> int:
        with self.lock:
            return sum(slot.open for slot in self.started)


class Use:
    """Of a pool: takes slots, and sees that nobody shares one and not too many are in use at once."""

    def __init__(self, size: int) -> None:
        self.factory = Factory()
        self.pool = Pool(size, self.factory)
        self.size = size
        self.order: list[str] = []
        self._lock = threading.Lock()
        self.num_in_use = self.most_in_use = 0

    @asynccontextmanager
    async def slot(self, profile: Profile = PYTHON, caller: str = "", priority: int = 0) -> AsyncIterator[StandInSlot]:
        async with self.pool.slot(profile, caller, priority) as slot:
            assert isinstance(slot, StandInSlot)
            with self._lock:
                assert not slot.in_use
                assert slot.profile == profile
                slot.in_use = True
                self.num_in_use += 1
                self.most_in_use = max(self.most_in_use, self.num_in_use)
                assert self.num_in_use <= self.size
                self.order.append(caller)
            try:
                yield slot
            finally:
                with self._lock:
                    slot.in_use = False
                    self.num_in_use -= 1

    async def once(self) -> None:
        async with self.slot():
            pass

    async def start_for_somebody_who_goes(self) -> None:
        """While the gate is closed."""
        num_asked = self.factory.num_asked
        task = asyncio.create_task(self.once())
        await until(lambda: self.factory.num_asked == num_asked + 1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def all_turns_are_there(self) -> None:
        """As many as ever can be had at once."""
        together = asyncio.Barrier(self.size)

        async def hold() -> None:
            async with self.slot():
                await together.wait()

        async with asyncio.timeout(_PATIENCE_S):
            await asyncio.gather(*(hold() for _ in range(self.size)))


def within_time(scenario: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(_PATIENCE_S):
            await scenario()

    asyncio.run(limited())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


async def a_while() -> None:
    """Long enough for everything that can go on without us."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_at_most_so_many_have_a_slot_at_once_and_all_get_one() -> None:
    async def scenario() -> None:
        use = Use(3)

        async def one(number: int) -> None:
            async with use.slot(caller=str(number % 4)):
                await asyncio.sleep(0.001)

        await asyncio.gather(*(one(number) for number in range(40)))
        assert use.most_in_use == 3
        assert len(use.order) == 40
        assert use.factory.num_asked == 3  # and they were used again and again

    within_time(scenario)


def test_those_who_wait_are_served_by_priority_and_in_turns() -> None:
    async def scenario() -> None:
        use = Use(1)

        async def one(caller: str, priority: int) -> None:
            async with use.slot(caller=caller, priority=priority):
                pass

        async with use.slot(caller="first"):
            waiting = [
                asyncio.create_task(one(caller, priority))
                for caller, priority in [("a", 0), ("a", 0), ("a", 0), ("b", 0), ("c", 1), ("b", 0)]
            ]
            await a_while()
        await asyncio.gather(*waiting)
        assert use.order == ["first", "c", "a", "b", "a", "b", "a"]

    within_time(scenario)


@pytest.mark.parametrize("seed", range(8))
def test_whoever_is_cancelled_at_any_moment_takes_no_turn_along(seed: int) -> None:
    async def scenario() -> None:
        dice, use = random.Random(seed), Use(2)

        async def one(profile: Profile) -> None:
            async with use.slot(profile, caller=dice.choice("abc"), priority=dice.choice([0, 0, 1])) as slot:
                await asyncio.sleep(dice.choice([0, 0, 0.001]))
                slot.healthy = dice.random() > 0.1

        for _ in range(40):
            tasks = [asyncio.create_task(one(dice.choice([PYTHON, OTHER]))) for _ in range(6)]
            for _ in range(dice.randrange(6)):
                await asyncio.sleep(dice.choice([0, 0, 0, 0.001]))
            for task in dice.sample(tasks, dice.randrange(1, 6)):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert use.num_in_use == 0
        await use.all_turns_are_there()
        await use.pool.close()
        assert use.factory.num_open == 0

    within_time(scenario)


def test_a_turn_that_was_given_to_somebody_who_is_cancelled_in_the_same_moment_goes_on() -> None:
    async def scenario() -> None:
        use = Use(1)

        async with use.slot():
            chosen, behind = asyncio.create_task(use.once()), asyncio.create_task(use.once())
            await a_while()
        await asyncio.sleep(0)  # `chosen` has the turn, and has not yet run
        chosen.cancel()
        await behind
        await use.all_turns_are_there()

    within_time(scenario)


def test_event_loops_of_several_threads_share_one_pool() -> None:
    use, num_threads, num_each = Use(2), 4, 25
    errors: list[BaseException] = []

    def work(name: str) -> None:
        async def one() -> None:
            async with use.slot(caller=name):
                await asyncio.sleep(0.0005)

        async def scenario() -> None:
            await asyncio.gather(*(one() for _ in range(num_each)))

        try:
            within_time(scenario)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(str(number),)) for number in range(num_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(use.order) == num_threads * num_each
    assert use.most_in_use == 2
    within_time(use.all_turns_are_there)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("size", [1, 2])
def test_an_event_loop_that_was_closed_while_it_waited_neither_keeps_a_turn_nor_gives_one_back(size: int) -> None:
    use = Use(size)

    async def one(loop: asyncio.AbstractEventLoop) -> None:
        async with use.slot():
            loop.stop()
            await asyncio.sleep(_PATIENCE_S)

    async def scenario() -> None:
        held = [use.pool.slot(PYTHON) for _ in range(size)]
        for context in held:
            await context.__aenter__()

        def wait_and_be_closed() -> None:
            loop = asyncio.new_event_loop()
            waiting = [loop.create_task(one(loop)) for _ in range(3)]
            loop.run_until_complete(asyncio.sleep(0.01))
            assert not any(task.done() for task in waiting)
            loop.close()

        await asyncio.to_thread(wait_and_be_closed)
        for context in held:
            await context.__aexit__(None, None, None)
        gc.collect()  # which throws the coroutines away, in the middle of their waiting

        async def hold() -> None:
            async with use.slot():
                await asyncio.sleep(0.01)

        await asyncio.gather(*(hold() for _ in range(4 * size)))
        assert use.most_in_use == size
        await use.all_turns_are_there()
        await use.pool.close()

    within_time(scenario)


@pytest.mark.parametrize("error", [SandboxError("no walls"), ConfigError("no package")])
def test_a_slot_that_cannot_be_started_is_an_error_of_who_wanted_it_and_the_turn_goes_on(error: Exception) -> None:
    async def scenario() -> None:
        use = Use(2)
        use.factory.failures = [error] * 5

        results = await asyncio.gather(*(use.once() for _ in range(8)), return_exceptions=True)
        assert results.count(error) == 5
        assert results.count(None) == 3
        await use.all_turns_are_there()

    within_time(scenario)


def test_where_no_thread_can_be_started_it_is_a_sandbox_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def submit(self, *_: object) -> None:
            raise RuntimeError("can't start new thread")

    async def scenario() -> None:
        use = Use(1)
        with monkeypatch.context() as patch:
            patch.setattr("posttrain.sandbox.pool._STARTERS", Full())
            with pytest.raises(SandboxError, match="can't start new thread"):
                async with use.slot():
                    pass
        await use.all_turns_are_there()

    within_time(scenario)


def test_a_slot_that_died_while_it_was_ready_is_given_up_and_another_one_taken() -> None:
    async def scenario() -> None:
        use = Use(1)
        async with use.slot() as first:
            pass
        first.healthy = False
        async with use.slot() as second:
            assert second is not first
        assert not first.open
        assert use.factory.num_open == 1

    within_time(scenario)


def test_a_slot_that_failed_in_use_is_not_used_again() -> None:
    async def scenario() -> None:
        use = Use(1)

        async def fail() -> None:
            async with use.slot() as slot:
                slot.healthy = False
                raise SandboxError("its server is gone")

        with pytest.raises(SandboxError, match="is gone"):
            await fail()
        first = use.factory.started[0]
        assert not first.open
        async with use.slot() as second:
            assert second is not first

    within_time(scenario)


def test_a_slot_is_used_again_where_its_user_failed() -> None:
    async def scenario() -> None:
        use = Use(1)

        async def fail() -> None:
            async with use.slot():
                raise ValueError("his own mistake")

        with pytest.raises(ValueError, match="his own"):
            await fail()
        async with use.slot() as slot:
            assert slot is use.factory.started[0]

    within_time(scenario)


def test_a_start_whose_user_is_gone_is_kept_for_the_next_one() -> None:
    async def scenario() -> None:
        use = Use(1)
        use.factory.gate.clear()

        await use.start_for_somebody_who_goes()
        use.factory.gate.set()
        await until(lambda: bool(use.factory.started) and not use.pool._starting)
        async with use.slot() as slot:
            assert slot is use.factory.started[0]
        assert use.factory.num_asked == 1

    within_time(scenario)


def test_slots_of_all_profiles_together_are_bounded() -> None:
    async def scenario() -> None:
        use = Use(2)
        for name in "abcdefgh":
            async with use.slot(Profile(name)):
                assert use.factory.num_open <= 4
        assert [slot.profile.name for slot in use.factory.started if slot.open] == list("efgh")

    within_time(scenario)


def test_starts_of_many_who_are_gone_do_not_add_up() -> None:
    async def scenario() -> None:
        use = Use(1)
        use.factory.gate.clear()

        for _ in range(6):
            await use.start_for_somebody_who_goes()
        use.factory.gate.set()
        await until(lambda: len(use.factory.started) == 6 and not use.pool._starting)
        assert use.factory.num_open == 2

    within_time(scenario)


def test_close_waits_for_what_runs_refuses_those_who_wait_and_leaves_no_slot() -> None:
    async def scenario() -> None:
        use = Use(1)
        may_end = asyncio.Event()

        async def one() -> str:
            async with use.slot() as slot:
                await may_end.wait()
                assert slot.open
                return "done"

        running = asyncio.create_task(one())
        await until(lambda: use.num_in_use == 1)
        waiting = asyncio.create_task(one())
        await a_while()
        closing = asyncio.create_task(use.pool.close())
        await asyncio.sleep(0.05)
        assert not closing.done()
        may_end.set()
        assert await running == "done"
        with pytest.raises(SandboxError, match="closed"):
            await waiting
        await closing
        assert use.factory.num_open == 0
        with pytest.raises(SandboxError, match="closed"):
            await one()
        await use.pool.close()

    within_time(scenario)


def test_close_waits_for_slots_that_are_being_started() -> None:
    async def scenario() -> None:
        use = Use(1)
        use.factory.gate.clear()

        await use.start_for_somebody_who_goes()
        closing = asyncio.create_task(use.pool.close())
        await asyncio.sleep(0.05)
        assert not closing.done()
        use.factory.gate.set()
        await closing
        assert len(use.factory.started) == 1
        assert use.factory.num_open == 0

    within_time(scenario)


def test_one_slot_that_cannot_be_closed_does_not_keep_the_others_open() -> None:
    async def scenario() -> None:
        use = Use(3)
        await use.all_turns_are_there()

        def refuse() -> None:
            raise OSError("busy")

        use.factory.started[1].close = refuse  # type: ignore[method-assign]
        with pytest.raises(SandboxError, match="busy"):
            await use.pool.close()
        assert [slot.open for slot in use.factory.started] == [False, True, False]

    within_time(scenario)


def test_a_pool_that_nobody_holds_any_more_closes_its_slots() -> None:
    use = Use(2)
    within_time(use.all_turns_are_there)
    factory = use.factory
    assert factory.num_open == 2
    del use
    gc.collect()
    assert factory.num_open == 0
