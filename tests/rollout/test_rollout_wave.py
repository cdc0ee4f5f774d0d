from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from posttrain.core.errors import WorkerDiedError
from posttrain.core.protocols import GenerateRequest
from posttrain.core.sandboxing import SANDBOX_CALLER, SandboxCaller
from posttrain.rewards.compose import outcome_reward
from posttrain.rollout.wave import GroupPlan, Roller


def make_roller(engine: Any, renderer: Any, dialogue_maker: Any) -> Roller:
    domain = SimpleNamespace(environment=lambda task, sandbox: dialogue_maker(task))
    return Roller({"dialogue": domain}, engine, renderer, None, outcome_reward, 1000)


def plans(task_maker: Any, num_groups: int, size: int) -> list[GroupPlan]:
    return [
        GroupPlan(f"g{number}", task_maker(index=number), (1.0,) * size, ("seed", number))
        for number in range(num_groups)
    ]


def test_a_wave_returns_whole_groups_in_order_and_one_batch(
    renderer: Any, task_maker: Any, engine_maker: Any, dialogue_maker: Any
) -> None:
    engine = engine_maker(lambda request: "yes" if request.request_id.endswith("/0/0") else "no")
    done: list[int] = []
    groups = asyncio.run(
        make_roller(engine, renderer, dialogue_maker).roll(plans(task_maker, 3, 2), on_done=lambda: done.append(1))
    )
    assert [group.group_id for group in groups] == ["g0", "g1", "g2"]
    assert [[t.sibling for t in group.trajectories] for group in groups] == [[0, 1]] * 3
    assert [[t.reward.total for t in g.trajectories if t.reward] for g in groups] == [[1.0, 0.0]] * 3
    assert len(engine.batches) == 1
    assert len(done) == 6


def test_siblings_have_seeds_of_their_own_and_the_same_plan_has_the_same_seeds(
    renderer: Any, task_maker: Any, engine_maker: Any, dialogue_maker: Any
) -> None:
    def seeds() -> dict[str, int]:
        seen: dict[str, int] = {}

        def reply(request: GenerateRequest) -> str:
            seen[request.request_id] = request.seed
            return "a"

        roller = make_roller(engine_maker(reply), renderer, dialogue_maker)
        asyncio.run(roller.roll(plans(task_maker, 2, 3)))
        return seen

    first = seeds()
    assert len(set(first.values())) == 6
    assert first == seeds()


def test_a_dead_engine_ends_the_wave_with_its_own_error(
    renderer: Any, task_maker: Any, engine_maker: Any, dialogue_maker: Any
) -> None:
    def die(request: GenerateRequest) -> str:
        raise WorkerDiedError("engine-0 died")

    roller = make_roller(engine_maker(die), renderer, dialogue_maker)
    with pytest.raises(WorkerDiedError):
        asyncio.run(roller.roll(plans(task_maker, 2, 2)))


def test_a_sandbox_knows_which_domain_an_execution_is_for(
    renderer: Any, task_maker: Any, engine_maker: Any, dialogue_maker: Any
) -> None:
    callers: list[SandboxCaller] = []

    def environment(task: Any, sandbox: Any) -> Any:
        callers.append(SANDBOX_CALLER.get())
        return dialogue_maker(task)

    async def roll() -> None:
        before = SANDBOX_CALLER.get(None)
        await roller.roll(plans(task_maker, 1, 2))
        assert SANDBOX_CALLER.get(None) == before  # it is the episodes' alone

    domain = SimpleNamespace(environment=environment)
    roller = Roller({"dialogue": domain}, engine_maker(lambda request: "a"), renderer, None, outcome_reward, 1000)
    asyncio.run(roll())
    assert callers == [SandboxCaller("dialogue")] * 2
