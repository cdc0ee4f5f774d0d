from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.core.errors import DeadlineExceededError, EngineError, WorkerDiedError
from posttrain.core.protocols import GenerateRequest, Generation
from posttrain.core.types import StopReason
from posttrain.fleet.engines import EnginePool, split_by_group
from posttrain.fleet.host import InlineHost
from posttrain.fleet.local import Placement, start_engines


def request(name: str, group: str = "") -> GenerateRequest:
    return GenerateRequest(name, np.asarray([1], dtype=np.int32), 4, seed=0, group=group)


class Engine:
    def __init__(self, weights: str = "a") -> None:
        self.weights = weights
        self.seen: list[str] = []

    async def generate(
        self, requests: Sequence[GenerateRequest], *, timeout_s: float | None = None
    ) -> list[Generation]:
        self.seen += [one.request_id for one in requests]
        empty = np.zeros(0, dtype=np.int32)
        return [
            Generation(one.request_id, empty, np.zeros(0, dtype=np.float32), empty, StopReason.STOP) for one in requests
        ]

    async def publish(self, version: int, weights: Path) -> None:
        self.weights = f"{weights}@{version}"

    async def fingerprint(self) -> str:
        return self.weights


@given(st.lists(st.sampled_from(["a", "b", "c", "d", "e"]), max_size=30), st.integers(1, 4))
@settings(deadline=None, max_examples=50)
def test_a_split_loses_nothing_and_keeps_groups_whole(groups: list[str], parts: int) -> None:
    requests = [request(f"r{number}", group) for number, group in enumerate(groups)]
    shares = split_by_group(requests, parts)
    assert sorted(one.request_id for share in shares for one in share) == sorted(one.request_id for one in requests)
    homes = {(one.group, number) for number, share in enumerate(shares) for one in share}
    assert len(homes) == len({one.group for one in requests})


def test_a_split_is_balanced_and_the_same_every_time() -> None:
    requests = [request(f"{group}/{sibling}", group) for group in "abcd" for sibling in range(3)]
    shares = split_by_group(requests, 2)
    assert [len(share) for share in shares] == [6, 6]
    assert shares == split_by_group(requests, 2)


def test_answers_come_back_in_the_order_of_the_requests() -> None:
    engines = [Engine(), Engine()]
    pool = EnginePool([InlineHost(engine) for engine in engines])
    requests = [request(f"{group}/{sibling}", group) for sibling in range(2) for group in "abc"]
    answers = asyncio.run(pool.generate(requests))
    assert [answer.request_id for answer in answers] == [one.request_id for one in requests]
    assert all(engine.seen for engine in engines)


def test_engines_that_hold_different_weights_are_found_out() -> None:
    engines = [Engine("a"), Engine("b")]
    pool = EnginePool([InlineHost(engine) for engine in engines])
    with pytest.raises(EngineError, match="2 different sets of weights"):
        asyncio.run(pool.fingerprint())

    async def publish() -> Any:
        await pool.publish(1, Path("w"))
        return await pool.fingerprint()

    assert asyncio.run(publish()) == "w@1"


SLOW = {"name": "scripted", "delay_s": 60.0}


def test_an_engine_in_this_process_keeps_a_deadline_itself_and_stays(tmp_path: Path) -> None:
    async def late() -> str:
        pool = await start_engines(SLOW, Placement(processes=0), tmp_path)
        with pytest.raises(DeadlineExceededError, match="the scripted engine ran out of time"):
            await pool.generate([request("r")], timeout_s=0.01)
        return await pool.fingerprint()

    assert asyncio.run(late()) == "scripted"


def test_an_engine_in_a_process_that_misses_a_deadline_is_ended(tmp_path: Path) -> None:
    async def late() -> None:
        pool = await start_engines(SLOW, Placement(processes=1), tmp_path)
        try:
            with pytest.raises(DeadlineExceededError, match="worker engine-0: generate ran out of time"):
                await pool.generate([request("r")], timeout_s=0.01)
            with pytest.raises(WorkerDiedError, match="generate ran out of time"):
                await pool.fingerprint()
        finally:
            await pool.close()

    asyncio.run(late())
