"""Many groups at once: their episodes run together and their requests travel in common batches.

A wave is what one training step, or one stretch of an evaluation, consumes. It does not decide what to try.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass

from posttrain.core.protocols import Domain, RolloutEngine, Sandbox
from posttrain.core.sandboxing import SANDBOX_CALLER, SandboxCaller
from posttrain.core.types import Group, Reward, Task, Trajectory, Verdict
from posttrain.rollout.episode import Attempt, run_episode
from posttrain.rollout.lockstep import Lockstep
from posttrain.rollout.render import Renderer


@dataclass(frozen=True)
class GroupPlan:
    """One group to roll: its task and the temperature of each sibling."""

    group_id: str
    task: Task
    temperatures: tuple[float, ...]  # [G]
    seed_parts: tuple[str | int, ...]


@dataclass(frozen=True)
class Roller:
    """Everything an episode needs beside its task."""

    domains: Mapping[str, Domain]
    engine: RolloutEngine
    renderer: Renderer
    sandbox: Sandbox | None
    reward: Callable[[Verdict], Reward | None]
    max_context: int

    async def roll(self, plans: Sequence[GroupPlan], *, on_done: Callable[[], None] | None = None) -> list[Group]:
        """Run every sibling of every plan; groups in the order of `plans`. `on_done` is called once an episode."""
        attempts = [
            Attempt(plan.task, plan.group_id, sibling, plan.seed_parts, temperature, self.max_context)
            for plan in plans
            for sibling, temperature in enumerate(plan.temperatures)
        ]
        lockstep = Lockstep(self.engine, len(attempts))
        trajectories = await _gather([self._episode(attempt, lockstep, on_done) for attempt in attempts])
        by_group: dict[str, list[Trajectory]] = {plan.group_id: [] for plan in plans}
        for trajectory in trajectories:
            by_group[trajectory.group_id].append(trajectory)
        return [Group(plan.group_id, plan.task, tuple(by_group[plan.group_id])) for plan in plans]

    async def _episode(self, attempt: Attempt, lockstep: Lockstep, on_done: Callable[[], None] | None) -> Trajectory:
        """In a task of its own: the sandbox then serves domains in turns, however many executions one of them wants."""
        SANDBOX_CALLER.set(SandboxCaller(attempt.task.domain))
        environment = self.domains[attempt.task.domain].environment(attempt.task, self.sandbox)
        try:
            return await run_episode(attempt, environment, lockstep.generate, self.renderer, self.reward)
        finally:
            lockstep.leave()
            if on_done is not None:
                on_done()


async def _gather(episodes: Sequence[Coroutine[None, None, Trajectory]]) -> list[Trajectory]:
    """All episodes in order, or the first error with the others cancelled."""
    tasks = [asyncio.ensure_future(episode) for episode in episodes]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
