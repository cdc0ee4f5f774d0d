"""Identical workers: sharing, replacing, retrying, closing."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from posttrain.core.errors import DeadlineExceededError, WorkerCallError, WorkerDiedError
from posttrain.workers.pool import MAX_RETRIES, PoolCounts, WorkerPool
from posttrain.workers.spec import WorkerSpec

MakeSpec = Callable[..., WorkerSpec]


def using(spec: WorkerSpec, size: int, body: Callable[[WorkerPool], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        pool = await WorkerPool.start(spec, size)
        try:
            return await body(pool)
        finally:
            await pool.close()

    return asyncio.run(main())


def test_calls_run_side_by_side_on_different_workers(make_spec: MakeSpec) -> None:
    async def body(pool: WorkerPool) -> None:
        sleeping = asyncio.create_task(pool.call("sleep", 0.5))
        await asyncio.sleep(0)
        pids = [await pool.call("pid") for _ in range(3)]
        assert not sleeping.done()
        assert len(set(pids)) == 1
        await sleeping
        assert pool.counts == PoolCounts(started=2)

    using(make_spec(), 2, body)


def test_waiting_calls_are_served_in_the_order_they_came(make_spec: MakeSpec) -> None:
    order: list[int] = []

    async def body(pool: WorkerPool) -> None:
        async def ask(number: int) -> None:
            await pool.call("echo", number)
            order.append(number)

        await asyncio.gather(*(ask(number) for number in range(20)))

    using(make_spec(), 1, body)
    assert order == list(range(20))


def test_worker_out_of_time_is_killed_counted_and_replaced(make_spec: MakeSpec) -> None:
    async def body(pool: WorkerPool) -> None:
        before = await pool.call("pid")
        with pytest.raises(DeadlineExceededError):
            await pool.call("spin", timeout_s=0.1, retry=True)
        assert pool.counts == PoolCounts(started=1, killed=1)
        assert await pool.call("pid") != before
        assert pool.counts == PoolCounts(started=2, killed=1)

    using(make_spec(), 1, body)


def test_cancelled_call_costs_its_worker_and_no_other(make_spec: MakeSpec) -> None:
    async def body(pool: WorkerPool) -> None:
        call = asyncio.create_task(pool.call("spin"))
        await asyncio.sleep(0.05)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.gather(pool.call("sleep", 0.1), pool.call("sleep", 0.1))
        assert pool.counts == PoolCounts(started=3, killed=1)

    using(make_spec(), 2, body)


def test_call_whose_worker_died_is_not_repeated_unasked(make_spec: MakeSpec, tmp_path: Path) -> None:
    mark = str(tmp_path / "mark")

    async def body(pool: WorkerPool) -> None:
        with pytest.raises(WorkerDiedError):
            await pool.call("exit_once", mark)
        assert await pool.call("exit_once", mark) == "survived"
        assert pool.counts == PoolCounts(started=2, died=1)

    using(make_spec(), 1, body)


def test_call_whose_worker_died_is_repeated_on_another_where_asked(make_spec: MakeSpec, tmp_path: Path) -> None:
    async def body(pool: WorkerPool) -> None:
        assert await pool.call("exit_once", str(tmp_path / "mark"), retry=True) == "survived"
        assert pool.counts == PoolCounts(started=2, died=1)

    using(make_spec(), 1, body)


def test_call_that_kills_every_worker_is_given_up(make_spec: MakeSpec) -> None:
    async def body(pool: WorkerPool) -> None:
        with pytest.raises(WorkerDiedError):
            await pool.call("exit", 1, retry=True)
        assert pool.counts == PoolCounts(started=1 + MAX_RETRIES, died=1 + MAX_RETRIES)

    using(make_spec(), 1, body)


def test_exception_of_a_method_is_not_a_death(make_spec: MakeSpec) -> None:
    async def body(pool: WorkerPool) -> None:
        with pytest.raises(WorkerCallError):
            await pool.call("fail", "no", retry=True)
        assert pool.counts == PoolCounts(started=1)

    using(make_spec(), 1, body)


def test_worker_that_died_while_idle_costs_no_call(make_spec: MakeSpec) -> None:
    async def body(pool: WorkerPool) -> None:
        os.kill(await pool.call("pid"), signal.SIGKILL)
        await asyncio.sleep(0.05)
        assert await pool.call("echo", 1) == 1
        assert pool.counts == PoolCounts(started=2, died=1)

    using(make_spec(), 1, body)


def test_pool_starts_whole_or_not_at_all(make_spec: MakeSpec) -> None:
    with pytest.raises(WorkerCallError, match="no bricks"):
        asyncio.run(WorkerPool.start(make_spec("worker_parts:failing_factory"), 2))
    with pytest.raises(ValueError, match="at least 1 worker"):
        asyncio.run(WorkerPool.start(make_spec(), 0))


def test_close_ends_busy_workers_and_refuses_waiting_and_later_calls(make_spec: MakeSpec) -> None:
    async def body(pool: WorkerPool) -> None:
        busy = asyncio.create_task(pool.call("sleep", 0.2))
        await asyncio.sleep(0.05)
        waiting = asyncio.create_task(pool.call("echo", 1))
        await asyncio.sleep(0)
        await pool.close()
        assert await busy == "slept 0.2"
        with pytest.raises(WorkerDiedError, match="pool w is closed"):
            await waiting
        with pytest.raises(WorkerDiedError, match="pool w is closed"):
            await pool.call("echo", 1)

    using(make_spec(), 1, body)


def test_each_worker_has_a_log_of_its_own(make_spec: MakeSpec) -> None:
    spec = make_spec()

    async def body(pool: WorkerPool) -> None:
        await asyncio.gather(pool.call("sleep", 0.2), pool.call("sleep", 0.2))

    using(spec, 2, body)
    assert sorted(path.name for path in spec.log_path.parent.iterdir()) == ["w-0.log", "w-1.log"]
