from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from posttrain.core.errors import EngineError
from posttrain.core.protocols import GenerateRequest
from posttrain.rollout.lockstep import Lockstep


def request(name: str) -> GenerateRequest:
    return GenerateRequest(name, np.asarray([1], dtype=np.int32), 4, seed=0)


def batches(engine: Any, delays_s: dict[str, float]) -> list[list[str]]:
    """Two turns of each episode, the environments answering after their delays."""

    async def episode(lockstep: Lockstep, name: str, delay_s: float) -> None:
        for turn in range(2):
            await asyncio.sleep(delay_s)
            await lockstep.generate(request(f"{name}/{turn}"))
        lockstep.leave()

    async def wave() -> None:
        lockstep = Lockstep(engine, len(delays_s))
        await asyncio.gather(*(episode(lockstep, name, delay) for name, delay in delays_s.items()))

    asyncio.run(wave())
    return engine.batches  # type: ignore[no-any-return]


def test_batches_do_not_depend_on_which_environment_answers_first(engine_maker: Any) -> None:
    fast_a = batches(engine_maker(lambda _: "x"), {"a": 0.0, "b": 0.01, "c": 0.005})
    fast_c = batches(engine_maker(lambda _: "x"), {"c": 0.0, "b": 0.002, "a": 0.01})
    assert fast_a == fast_c == [["a/0", "b/0", "c/0"], ["a/1", "b/1", "c/1"]]


def test_an_episode_that_left_is_not_waited_for(engine_maker: Any) -> None:
    engine = engine_maker(lambda _: "x")

    async def wave() -> None:
        lockstep = Lockstep(engine, 2)
        waiting = asyncio.ensure_future(lockstep.generate(request("a")))
        await asyncio.sleep(0)
        assert engine.batches == []
        lockstep.leave()
        await waiting

    asyncio.run(wave())
    assert engine.batches == [["a"]]


def test_an_engine_error_reaches_every_episode_of_the_batch() -> None:
    class Broken:
        async def generate(self, requests: Any, *, timeout_s: float | None = None) -> Any:
            raise EngineError("no memory")

    async def wave() -> list[object]:
        lockstep = Lockstep(Broken(), 2)  # type: ignore[arg-type]
        both = [lockstep.generate(request("a")), lockstep.generate(request("b"))]
        return list(await asyncio.gather(*both, return_exceptions=True))

    assert [type(error) for error in asyncio.run(wave())] == [EngineError, EngineError]


def test_one_request_twice_in_a_batch_is_refused(engine_maker: Any) -> None:
    async def wave() -> None:
        lockstep = Lockstep(engine_maker(lambda _: "x"), 3)
        first = asyncio.ensure_future(lockstep.generate(request("a")))
        await asyncio.sleep(0)
        try:
            await lockstep.generate(request("a"))
        finally:
            first.cancel()

    with pytest.raises(AssertionError, match="twice"):
        asyncio.run(wave())
