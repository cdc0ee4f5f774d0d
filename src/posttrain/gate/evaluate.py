"""Runs a policy over a fixed suite: `samples` attempts a task at temperature 1 and one greedy attempt.

Sampling is keyed by task and attempt, not by the policy or the stage, so that two policies meet the same random
numbers and their difference is measured on pairs; batches have a fixed order, so the same checkpoint scores the same
(law L29). What was scheduled stays in the denominator (law L28). It decides nothing.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from posttrain.core.errors import PosttrainError
from posttrain.core.protocols import Domain, Sandbox
from posttrain.core.types import EvalReport, Group, ItemScore, Task, Trajectory, VerdictStatus
from posttrain.gate.score import score_report
from posttrain.gate.suite import Suite
from posttrain.rollout.wave import GroupPlan, Roller

TASKS_PER_WAVE = 64
"""While one wave's attempts are verified the next one's tokens are sampled."""
CONSTANT_CANDIDATES = 3


@dataclass(frozen=True)
class EvaluationOptions:
    """How a suite is sampled."""

    tasks: int = 128
    """Distinct tasks in each domain."""
    samples: int = 4
    """Attempts a task at temperature 1."""
    seed: int = 20_000
    """Of the suite and of its sampling; kept apart from the run's seed, so that runs are compared on one suite."""

    def __post_init__(self) -> None:
        if self.tasks < 1 or self.samples < 1:
            raise ValueError("evaluation needs at least one task a domain and one sample a task")


async def evaluate(
    roller: Roller,
    suite: Suite,
    options: EvaluationOptions,
    best_constant: Mapping[str, float],
    *,
    label: str,
    model: str,
    version: int,
    on_done: Callable[[], None] | None = None,
) -> tuple[EvalReport, list[Group]]:
    """The report, and the groups it was made of (the last sibling of each is the greedy one)."""
    started = time.monotonic()
    plans = [
        GroupPlan(
            group_id=f"eval-{number:05d}",
            task=task,
            temperatures=(1.0,) * options.samples + (0.0,),
            seed_parts=("eval", options.seed, task.task_id),
        )
        for number, task in enumerate(suite.interleaved())
    ]
    two_waves = asyncio.Semaphore(2)

    async def wave(start: int) -> list[Group]:
        async with two_waves:
            return await roller.roll(plans[start : start + TASKS_PER_WAVE], on_done=on_done)

    waves = await asyncio.gather(*(wave(start) for start in range(0, len(plans), TASKS_PER_WAVE)))
    groups = [group for groups in waves for group in groups]
    report = score_report(
        [item_score(group) for group in groups],
        label=label,
        model=model,
        version=version,
        suite_id=suite.suite_id,
        best_constant=best_constant,
        wall_s=time.monotonic() - started,
    )
    return report, groups


def item_score(group: Group) -> ItemScore:
    """One task's line of the report; its last trajectory is the greedy attempt."""
    *sampled, greedy = group.trajectories
    return ItemScore(
        domain=group.task.domain,
        task_id=group.task.task_id,
        scores=tuple(_score(trajectory) for trajectory in sampled),
        greedy=_score(greedy),
        answers=tuple(t.verdict.answer if t.verdict is not None else None for t in sampled),
        failures=sum(not trajectory.scored for trajectory in sampled),
        num_tokens=sum(trajectory.cost.num_sampled_tokens for trajectory in sampled),
        truncated=sum(trajectory.stop.truncated for trajectory in sampled),
    )


def _score(trajectory: Trajectory) -> float:
    return trajectory.verdict.score if trajectory.scored and trajectory.verdict is not None else 0.0


async def best_constants(domains: Mapping[str, Domain], suite: Suite, sandbox: Sandbox | None) -> dict[str, float]:
    """Score of the best constant reply in each domain: what a policy without skill gets by repeating itself.

    Candidates are the suite's most frequent reference answers; a domain without demonstrations gets NaN.
    """
    return {
        name: await _best_constant(domains[name], tasks, sandbox) if tasks else float("nan")
        for name, tasks in suite.tasks.items()
    }


async def _best_constant(domain: Domain, tasks: Sequence[Task], sandbox: Sandbox | None) -> float:
    demonstrations = [domain.demonstration(task) for task in tasks]
    replies: dict[str | None, list[str]] = defaultdict(list)
    pairs = [(task, reply) for task, reply in zip(tasks, demonstrations, strict=True) if reply is not None]
    judged = await asyncio.gather(*(_judge(domain, task, reply, sandbox) for task, reply in pairs))
    for (_, reply), (_, answer) in zip(pairs, judged, strict=True):
        replies[answer].append(reply)
    candidates = [
        min(replies[answer], key=len)
        for answer in sorted(replies, key=lambda answer: (-len(replies[answer]), str(answer)))[:CONSTANT_CANDIDATES]
    ]
    best = float("nan")
    for candidate in candidates:
        scores = await asyncio.gather(*(_judge(domain, task, candidate, sandbox) for task in tasks))
        mean = sum(score for score, _ in scores) / len(tasks)
        best = mean if math.isnan(best) else max(best, mean)
    return best


async def _judge(domain: Domain, task: Task, reply: str, sandbox: Sandbox | None) -> tuple[float, str | None]:
    environment = domain.environment(task, sandbox)
    try:
        await environment.reset()
        verdict = (await environment.step(reply, truncated=False)).verdict
    finally:
        await environment.close()
    if verdict is None or verdict.status is VerdictStatus.NO_VERDICT:
        reason = "no verdict" if verdict is None else verdict.reason
        raise PosttrainError(f"the best constant answer of domain {domain.name} could not be measured: {reason}")
    return verdict.score, verdict.answer
