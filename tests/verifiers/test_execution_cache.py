"""One execution for identical programs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from posttrain.core.errors import SandboxError
from posttrain.core.sandboxing import CallOutput, CallResult, IsolationTier, OutputStatus, ResultClass, RunResult
from posttrain.core.sandboxing import SandboxLimits as Limits
from posttrain.verifiers.execution_cache import ExecutionCache

LIMITS = Limits()


def result(run: ResultClass = ResultClass.OK) -> CallResult:
    return CallResult(RunResult(run, IsolationTier.FULL), (CallOutput(OutputStatus.VALUE, 1),))


def test_the_same_call_runs_once_and_another_input_function_or_limit_runs_again(told_sandbox: Any) -> None:
    told_sandbox.results = [result()]
    cache = ExecutionCache()

    async def calls() -> None:
        for _ in range(3):
            await cache.call(told_sandbox, "s", "f", [[1]], LIMITS)
        await cache.call(told_sandbox, "s", "f", [[True]], LIMITS)
        await cache.call(told_sandbox, "s", "g", [[1]], LIMITS)
        await cache.call(told_sandbox, "s", "f", [[1]], Limits(cpu_s=1.0))

    asyncio.run(calls())
    assert (cache.executions, cache.hits) == (4, 2)


@pytest.mark.parametrize("ours", [ResultClass.INFRASTRUCTURE_ERROR, ResultClass.TIME_LIMIT])
def test_what_says_nothing_lasting_about_the_program_is_not_kept(ours: ResultClass, told_sandbox: Any) -> None:
    told_sandbox.results = [result(ours), result()]
    cache = ExecutionCache()

    async def calls() -> list[ResultClass]:
        return [(await cache.call(told_sandbox, "s", "f", [[1]], LIMITS)).run.result_class for _ in range(3)]

    assert asyncio.run(calls()) == [ours, ResultClass.OK, ResultClass.OK]
    assert cache.executions == 2


def test_an_error_reaches_all_who_wait_and_is_forgotten(told_sandbox: Any) -> None:
    told_sandbox.results = [SandboxError("down"), result()]
    cache = ExecutionCache()

    async def calls() -> list[Any]:
        told_sandbox.gate = asyncio.Event()
        waiting = [asyncio.ensure_future(cache.call(told_sandbox, "s", "f", [[1]], LIMITS)) for _ in range(3)]
        await asyncio.sleep(0)
        told_sandbox.gate.set()
        together = await asyncio.gather(*waiting, return_exceptions=True)
        return [*together, await cache.call(told_sandbox, "s", "f", [[1]], LIMITS)]

    *errors, after = asyncio.run(calls())
    assert [type(error) for error in errors] == [SandboxError] * 3
    assert after.run.result_class is ResultClass.OK


def test_a_cancelled_sibling_leaves_the_execution_to_the_others(told_sandbox: Any) -> None:
    told_sandbox.results = [result()]
    cache = ExecutionCache()

    async def calls() -> CallResult:
        told_sandbox.gate = asyncio.Event()
        first, second = (asyncio.ensure_future(cache.call(told_sandbox, "s", "f", [[1]], LIMITS)) for _ in range(2))
        await asyncio.sleep(0.001)
        first.cancel()
        await asyncio.sleep(0.001)
        told_sandbox.gate.set()
        return await second

    assert asyncio.run(calls()).run.result_class is ResultClass.OK
    assert told_sandbox.cancelled == 0


def test_when_the_last_waiter_is_cancelled_the_execution_ends_and_is_forgotten(told_sandbox: Any) -> None:
    told_sandbox.results = [result()]
    cache = ExecutionCache()

    async def calls() -> None:
        told_sandbox.gate = asyncio.Event()
        only = asyncio.ensure_future(cache.call(told_sandbox, "s", "f", [[1]], LIMITS))
        await asyncio.sleep(0.001)
        only.cancel()
        await asyncio.gather(only, return_exceptions=True)
        await asyncio.sleep(0.001)
        told_sandbox.gate.set()
        await cache.call(told_sandbox, "s", "f", [[1]], LIMITS)

    asyncio.run(calls())
    assert told_sandbox.cancelled == 1
    assert cache.executions == 2


def test_the_cache_is_bounded_and_forgets_what_was_used_longest_ago(told_sandbox: Any) -> None:
    told_sandbox.results = [result()]
    cache = ExecutionCache(max_entries=2)

    async def calls() -> None:
        for source in ("a", "b", "a", "c", "a", "b"):
            await cache.call(told_sandbox, source, "f", [[1]], LIMITS)

    asyncio.run(calls())
    assert told_sandbox.sources == ["a", "b", "c", "b"]
