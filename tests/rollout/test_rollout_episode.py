from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from posttrain.core.errors import EngineError, WorkerDiedError
from posttrain.core.protocols import GenerateRequest, Generation
from posttrain.core.types import Boundary, StopReason, Task, Trajectory, VerdictStatus
from posttrain.rewards.compose import outcome_reward
from posttrain.rollout.episode import Attempt, run_episode


def play(task: Task, environment: Any, generate: Any, renderer: Any, **attempt: Any) -> Trajectory:
    return asyncio.run(
        run_episode(Attempt(task, "g", 0, ("seed", 1), **attempt), environment, generate, renderer, outcome_reward)
    )


def one_by_one(engine: Any) -> Callable[[GenerateRequest], Any]:
    async def generate(request: GenerateRequest) -> Generation:
        return (await engine.generate([request]))[0]  # type: ignore[no-any-return]

    return generate


def test_correct_reply_is_a_scored_trajectory(
    renderer: Any, task_maker: Any, engine_maker: Any, dialogue_maker: Any
) -> None:
    task = task_maker("yes")
    environment = dialogue_maker(task)
    trajectory = play(task, environment, one_by_one(engine_maker(lambda _: "yes", version=3)), renderer)
    assert trajectory.scored
    assert trajectory.reward is not None
    assert trajectory.reward.total == 1.0
    assert trajectory.reply == "yes"
    assert trajectory.stop is StopReason.STOP
    assert environment.closed


def test_mask_covers_sampled_tokens_alone_and_the_stop_token_is_among_them(
    renderer: Any, task_maker: Any, engine_maker: Any, dialogue_maker: Any
) -> None:
    task = task_maker("yes", max_turns=2)
    trajectory = play(task, dialogue_maker(task, turns=2), one_by_one(engine_maker(lambda _: "yes")), renderer)
    text = "".join(chr(token) if token else "." for token in trajectory.tokens)
    mask = "".join("x" if sampled else "-" for sampled in trajectory.sampled)
    assert text == "q0>yes.ok>yes."
    assert mask == "---xxxx---xxxx"
    assert [(turn.start, turn.end) for turn in trajectory.turns] == [(3, 7), (10, 14)]
    assert (trajectory.versions[trajectory.sampled] == 0).all()
    assert (trajectory.versions[~trajectory.sampled] == -1).all()


def test_second_turn_begins_with_exactly_the_ids_that_were_sampled(
    renderer: Any, task_maker: Any, engine_maker: Any, dialogue_maker: Any
) -> None:
    prompts: list[list[int]] = []

    def reply(request: GenerateRequest) -> str:
        prompts.append(request.prompt.tolist())
        return "a"

    task = task_maker(max_turns=2)
    trajectory = play(task, dialogue_maker(task, turns=2), one_by_one(engine_maker(reply)), renderer)
    assert prompts[1] == trajectory.tokens[: len(prompts[1])].tolist()


def test_every_request_carries_the_attempts_temperature_and_every_turn_a_seed_of_its_own(
    renderer: Any, task_maker: Any, engine_maker: Any, dialogue_maker: Any
) -> None:
    requests: list[GenerateRequest] = []

    def reply(request: GenerateRequest) -> str:
        requests.append(request)
        return "a"

    task = task_maker(max_turns=3)
    generate = one_by_one(engine_maker(reply))
    play(task, dialogue_maker(task, turns=3), generate, renderer, temperature=0.6)
    assert [request.temperature for request in requests] == [0.6] * 3
    assert len({request.seed for request in requests}) == 3
    play(task, dialogue_maker(task, turns=3), generate, renderer)
    assert [request.temperature for request in requests[3:]] == [1.0] * 3
    assert [request.seed for request in requests[3:]] == [request.seed for request in requests[:3]]


def test_environment_that_raises_is_a_failure_and_never_a_score(
    renderer: Any, task_maker: Any, engine_maker: Any, dialogue_maker: Any
) -> None:
    task = task_maker("yes")
    environment = dialogue_maker(task, fails_in_turn=0)
    trajectory = play(task, environment, one_by_one(engine_maker(lambda _: "yes")), renderer)
    assert trajectory.failure is not None
    assert trajectory.failure.boundary is Boundary.ENVIRONMENT
    assert "the environment broke" in trajectory.failure.reason
    assert trajectory.reward is None
    assert not trajectory.scored
    assert environment.closed


def test_engine_failure_is_data_and_a_dead_worker_ends_the_run(
    renderer: Any, task_maker: Any, dialogue_maker: Any
) -> None:
    async def broken(request: GenerateRequest) -> Generation:
        raise EngineError("no memory")

    async def dead(request: GenerateRequest) -> Generation:
        raise WorkerDiedError("engine-0 died")

    task = task_maker()
    trajectory = play(task, dialogue_maker(task), broken, renderer)
    assert trajectory.failure is not None
    assert trajectory.failure.boundary is Boundary.ENGINE
    with pytest.raises(WorkerDiedError):
        play(task, dialogue_maker(task), dead, renderer)


def test_truncated_reply_gets_no_invented_stop_token(
    renderer: Any, task_maker: Any, engine_maker: Any, dialogue_maker: Any
) -> None:
    task = task_maker("yes", max_new_tokens=2)
    trajectory = play(task, dialogue_maker(task), one_by_one(engine_maker(lambda _: "yes")), renderer)
    assert trajectory.stop is StopReason.MAX_NEW_TOKENS
    assert trajectory.tokens[trajectory.sampled].tolist() == [ord("y"), ord("e")]


def test_running_out_of_turns_or_context_is_incorrect_not_missing(
    renderer: Any, task_maker: Any, engine_maker: Any, dialogue_maker: Any
) -> None:
    task = task_maker(max_turns=2)
    endless = play(task, dialogue_maker(task, turns=5), one_by_one(engine_maker(lambda _: "a")), renderer)
    assert endless.stop is StopReason.MAX_TURNS
    assert endless.verdict is not None
    assert endless.verdict.status is VerdictStatus.INCORRECT
    full = play(task, dialogue_maker(task), one_by_one(engine_maker(lambda _: "a")), renderer, max_context=3)
    assert full.stop is StopReason.MAX_CONTEXT
    assert full.scored
