from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from tests.engines.parts import generate, prompt, request

from posttrain.core.errors import DeadlineExceededError, EngineError
from posttrain.core.fingerprint import folder_fingerprint
from posttrain.core.protocols import GenerateRequest, PauseMode, RolloutEngine
from posttrain.core.registry import build
from posttrain.core.types import StopReason
from posttrain.engines.scripted import Reply, ScriptedEngine

STOP = 9


def counting(request: GenerateRequest) -> Reply:
    return Reply((1, 2, 3, STOP, 4), (-0.1, -0.2, -0.3, -0.4, -0.5))


def test_it_is_a_rollout_engine_and_a_component() -> None:
    engine = build("engine", {"name": "scripted", "max_context": 7})
    assert isinstance(engine, RolloutEngine)
    assert asyncio.run(engine.capabilities()).max_context == 7
    assert generate(engine, [request(stop_tokens=(STOP,))])[0].tokens.tolist() == [STOP]


def test_replies_are_cut_as_a_real_engine_would() -> None:
    engine = ScriptedEngine(counting, max_context=12)
    requests = [
        request("all"),
        request("stop", stop_tokens=(STOP,)),
        request("limit", max_new_tokens=2),
        request("context", prompt(11)),
    ]
    found = generate(engine, requests)
    assert [one.tokens.tolist() for one in found] == [[1, 2, 3, STOP, 4], [1, 2, 3, STOP], [1, 2], [1]]
    assert found[1].logprobs.tolist() == pytest.approx([-0.1, -0.2, -0.3, -0.4])
    assert [one.stop for one in found[1:]] == [StopReason.STOP, StopReason.MAX_NEW_TOKENS, StopReason.MAX_CONTEXT]
    assert engine.requests == [tuple(requests)]


def test_a_mapping_answers_by_prompt_and_names_what_it_lacks() -> None:
    engine = ScriptedEngine({tuple(prompt(5).tolist()): Reply((1,), stop=StopReason.ABORTED)})
    found = generate(engine, [request()])[0]
    assert (found.tokens.tolist(), found.logprobs.tolist(), found.stop) == ([1], [-1.0], StopReason.ABORTED)
    with pytest.raises(EngineError, match="no reply to the prompt of request other"):
        generate(engine, [request("other", prompt(4))])


def test_failures_come_at_their_call() -> None:
    engine = ScriptedEngine(failures={1: EngineError("broken")})
    generate(engine, [request()])
    with pytest.raises(EngineError, match="broken"):
        generate(engine, [request()])
    generate(engine, [request()])


def test_delays_meet_deadlines() -> None:
    engine = ScriptedEngine(delay_s=0.02)
    assert len(generate(engine, [request()], timeout_s=5.0)) == 1
    with pytest.raises(DeadlineExceededError):
        generate(engine, [request()], timeout_s=0.001)


def test_a_publish_is_kept_stamped_and_fingerprinted(tied: Path, updated: Path) -> None:
    engine = ScriptedEngine(model=tied)
    assert asyncio.run(engine.fingerprint()) == folder_fingerprint(tied)
    asyncio.run(engine.publish(4, updated))
    assert engine.published == [(4, updated)]
    assert generate(engine, [request()])[0].versions.tolist() == [4]
    assert asyncio.run(engine.fingerprint()) == folder_fingerprint(updated)


def test_draining_waits_for_what_runs_and_holds_what_comes() -> None:
    async def play() -> list[str]:
        engine = ScriptedEngine(delay_s=0.02)
        events: list[str] = []

        async def call(name: str) -> None:
            await engine.generate([request(name)])
            events.append(name)

        first = asyncio.create_task(call("first"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await engine.pause(PauseMode.DRAIN)
        events.append("paused")
        second = asyncio.create_task(call("second"))
        await asyncio.sleep(0.05)
        events.append("resumed")
        await engine.resume()
        await asyncio.gather(first, second)
        return events

    assert sorted(asyncio.run(play())[:2]) == ["first", "paused"]
    assert asyncio.run(play())[2:] == ["resumed", "second"]
    with pytest.raises(EngineError, match="drain"):
        asyncio.run(ScriptedEngine().pause(PauseMode.KEEP))


def test_it_needs_no_torch() -> None:
    code = "import sys, posttrain.engines.scripted; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
