"""One attempt at one task: render ▶ sample ▶ environment, until done; then a trajectory, whatever happened.

A failure of ours (engine, environment) becomes data on the trajectory and never a score (law L23). The stream is
append-only (laws L11-L14). It knows neither rewards across siblings nor batches.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

import numpy as np

from posttrain.core.errors import DeadlineExceededError, EngineError, IsolationUnavailableError
from posttrain.core.protocols import Environment, GenerateRequest, Generation
from posttrain.core.seeding import stable_hash
from posttrain.core.stream import TokenStream
from posttrain.core.types import (
    Boundary,
    Cost,
    Failure,
    Reward,
    StopReason,
    Task,
    Trajectory,
    Turn,
    Verdict,
)
from posttrain.rollout.render import Renderer

Generate = Callable[[GenerateRequest], Coroutine[None, None, Generation]]


@dataclass(frozen=True)
class Attempt:
    """Which attempt this is and how it is sampled."""

    task: Task
    group_id: str
    sibling: int
    seed_parts: tuple[str | int, ...]
    """What the attempt's random numbers are keyed by, together with sibling and turn."""
    temperature: float = 1.0
    max_context: int = 8192

    @property
    def trajectory_id(self) -> str:
        return f"{self.group_id}/{self.sibling}"


async def run_episode(
    attempt: Attempt,
    environment: Environment,
    generate: Generate,
    renderer: Renderer,
    reward: Callable[[Verdict], Reward | None],
) -> Trajectory:
    """Play the attempt to its end. Raises only what no trajectory can hold: a dead engine worker, cancellation."""
    episode = _Episode(attempt, environment, generate, renderer)
    started = time.monotonic()
    try:
        await episode.play()
    except (EngineError, DeadlineExceededError) as error:
        episode.fail(Boundary.ENGINE, error)
    finally:
        await environment.close()
    return episode.trajectory(reward, time.monotonic() - started)


class _Episode:
    """The state of one attempt while it is played."""

    def __init__(self, attempt: Attempt, environment: Environment, generate: Generate, renderer: Renderer) -> None:
        self.attempt = attempt
        self.environment = environment
        self.generate = generate
        self.renderer = renderer
        self.stream = TokenStream()
        self.turns: list[Turn] = []
        self.reply = ""
        self.stop = StopReason.ABORTED
        self.verdict: Verdict | None = None
        self.failure: Failure | None = None

    async def play(self) -> None:
        limits = self.attempt.task.limits
        try:
            self.stream.observe(self.renderer.prompt(await self.environment.reset()))
        except Exception as error:  # an environment is a plug-in: whatever it raises is its failure
            return self.fail(Boundary.ENVIRONMENT, error)
        for turn in range(limits.max_turns):
            room = self.attempt.max_context - len(self.stream)
            if room <= 0:
                self.stop = StopReason.MAX_CONTEXT
                return None
            done = await self._turn(turn, min(room, limits.max_new_tokens))
            if done:
                return None
        self.stop = StopReason.MAX_TURNS
        return None

    async def _turn(self, turn: int, max_new_tokens: int) -> bool:
        attempt = self.attempt
        generation = await self.generate(
            GenerateRequest(
                request_id=f"{attempt.trajectory_id}/{turn}",
                prompt=self.stream.tokens(),
                max_new_tokens=max_new_tokens,
                seed=stable_hash(*attempt.seed_parts, attempt.sibling, turn),
                temperature=attempt.temperature,
                stop_tokens=self.renderer.stop_tokens,
                group=attempt.group_id if turn == 0 else "",
            )
        )
        start, end = self.stream.sample(
            generation.tokens.tolist(), generation.logprobs.tolist(), generation.versions.tolist()
        )
        self.stop = generation.stop
        if generation.stop is StopReason.ABORTED:
            self.fail(Boundary.ENGINE, EngineError("the engine aborted the request"))
            return True
        self.reply = self.renderer.text(generation.tokens.tolist())
        try:
            async with asyncio.timeout(attempt.task.limits.timeout_s):
                step = await self.environment.step(self.reply, truncated=generation.stop.truncated)
            self.turns.append(Turn(start, end, step.reward, step.done, step.info))
            if step.done:
                self.verdict = step.verdict
            else:
                self.stream.observe(self.renderer.extend(step.messages))
        except IsolationUnavailableError:
            raise  # no attempt can be judged here: the run must stop (law L27)
        except Exception as error:  # a plug-in, as above
            self.fail(Boundary.ENVIRONMENT, error)
            return True
        return step.done or generation.stop.truncated

    def fail(self, boundary: Boundary, error: Exception) -> None:
        self.stop = StopReason.ABORTED
        self.failure = Failure(boundary, f"{type(error).__name__}: {error}")

    def trajectory(self, reward: Callable[[Verdict], Reward | None], wall_s: float) -> Trajectory:
        if self.verdict is None and self.failure is None:
            # The policy ran out of turns or context before the environment could judge: its own doing.
            self.verdict = Verdict.incorrect(f"the attempt ended without an answer ({self.stop})")
        sampled = self.stream.sampled()
        return Trajectory(
            trajectory_id=self.attempt.trajectory_id,
            task=self.attempt.task,
            group_id=self.attempt.group_id,
            sibling=self.attempt.sibling,
            tokens=self.stream.tokens(),
            sampled=sampled,
            behavior_logprobs=self.stream.logprobs(),
            versions=self.stream.versions(),
            turns=tuple(self.turns),
            reply=self.reply,
            stop=self.stop,
            verdict=self.verdict,
            reward=reward(self.verdict) if self.verdict is not None and self.failure is None else None,
            failure=self.failure,
            cost=Cost(
                num_sampled_tokens=int(np.count_nonzero(sampled)),
                wall_s=wall_s,
                sandbox_s=self.verdict.wall_s if self.verdict is not None and self.verdict.isolation_tier else 0.0,
            ),
        )
