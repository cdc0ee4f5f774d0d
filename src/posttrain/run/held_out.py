"""A domain's independent verifier: it judges every attempt a second time, for metrics alone, never for the reward.

It runs in a worker process that a deadline ends. Where it raises, runs out of time or cannot read what it is given, it
has no verdict, which says nothing about the attempt.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from posttrain.core.errors import ConfigError, DeadlineExceededError, WorkerCallError, WorkerDiedError
from posttrain.core.protocols import Domain, Verifier
from posttrain.core.registry import build
from posttrain.core.types import Json, Split, Task, Trajectory, Verdict
from posttrain.run.config import DomainConfig, HeldOutConfig
from posttrain.workers.pool import WorkerPool
from posttrain.workers.spec import WorkerSpec

TIMEOUT_S = 10.0
"""Of one judgement."""


class Judge:
    """What the worker holds: the verifiers by domain."""

    def __init__(self, verifiers: Mapping[str, Json]) -> None:
        self._verifiers: dict[str, Verifier] = {domain: build("verifier", spec) for domain, spec in verifiers.items()}

    def judge(self, domain: str, reply: str, gold: Json) -> Verdict:
        verifier = self._verifiers[domain]
        started = time.monotonic()
        try:
            verdict = verifier.verify(reply, gold)
        except Exception as error:  # a plug-in: whatever it raises is its failure, not the candidate's (law L23)
            return Verdict.none(f"the independent verifier raised {type(error).__name__}: {error}")
        return replace(verdict, verifier_version=verifier.version, wall_s=time.monotonic() - started)


class HeldOutVerifiers:
    """Those of a run's domains. The worker starts with the first judgement; `close` ends it."""

    def __init__(self, configs: Mapping[str, DomainConfig], logs: Path) -> None:
        self._configs = {name: config.held_out for name, config in configs.items() if config.held_out is not None}
        verifiers = {name: held_out.verifier for name, held_out in self._configs.items()}
        factory = "posttrain.run.held_out:Judge"
        self._spec = WorkerSpec("held-out", factory, logs / "held-out.log", {"verifiers": verifiers})
        self._pool: WorkerPool | None = None

    def __contains__(self, domain: str) -> bool:
        return domain in self._configs

    async def judge(self, trajectory: Trajectory) -> Verdict:
        domain = trajectory.task.domain
        gold = gold_of(trajectory.task, self._configs[domain])
        if self._pool is None:
            self._pool = await WorkerPool.start(self._spec, 1)
        try:
            verdict = await self._pool.call("judge", domain, trajectory.reply, gold, timeout_s=TIMEOUT_S)
        except (DeadlineExceededError, WorkerDiedError, WorkerCallError) as error:
            return Verdict.none(f"the independent verifier failed: {error}")
        assert isinstance(verdict, Verdict)
        return verdict

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.close()


def gold_of(task: Task, held_out: HeldOutConfig) -> Json:
    """Raises `ConfigError` where the task hides nothing of this name."""
    if held_out.gold not in task.hidden:
        raise ConfigError(
            f"domain {task.domain}: held_out.gold is {held_out.gold!r}, and its tasks hide {sorted(task.hidden)}"
        )
    return task.hidden[held_out.gold]


def check_held_out(configs: Mapping[str, DomainConfig], domains: Mapping[str, Domain]) -> None:
    """What can be found wrong before anything is started. Raises `ConfigError`, `UnknownNameError`."""
    for name, config in configs.items():
        if config.held_out is not None:
            build("verifier", config.held_out.verifier)
            gold_of(domains[name].task(Split.TRAIN, 0, 0, config.levels[0]), config.held_out)
