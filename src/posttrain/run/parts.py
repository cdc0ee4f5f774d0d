"""Everything a run is made of, started and stopped together: domains, suite, engine, learner, sandbox.

It wires; it does not loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from posttrain.core.errors import ConfigError, EngineError
from posttrain.core.protocols import Domain, Learner, Observer, RolloutEngine, Sandbox
from posttrain.core.registry import accepts, build
from posttrain.core.seeding import stable_hash
from posttrain.fleet.learners import LearnerGroup
from posttrain.fleet.local import start_engines, start_learners
from posttrain.gate.suite import Suite, build_suite
from posttrain.models.catalog import resolve
from posttrain.rewards.compose import outcome_reward
from posttrain.rollout.render import ChatRenderer
from posttrain.rollout.wave import Roller
from posttrain.run.config import DomainConfig, EngineConfig, RunConfig
from posttrain.run.rl_stage import RlStage


@dataclass(frozen=True)
class Rollouts:
    """What attempts need: enough to evaluate a policy."""

    domains: Mapping[str, Domain]
    renderer: ChatRenderer
    sandbox: Sandbox | None
    engine: RolloutEngine
    roller: Roller


@dataclass
class Parts:
    """What a run needs, and the version of the weights that the engine samples from."""

    config: RunConfig
    rollouts: Rollouts
    suite: Suite
    learner: Learner
    observer: Observer
    weights: Path
    """Where published weights pass from learner to engine."""
    version: int = 0
    fingerprint: str = ""
    """Of the weights that the engine samples from; empty before the first publication."""

    async def publish(self, version: int) -> None:
        """Give the learner's weights to the engine and see that they have arrived (law L17)."""
        trained = await self.learner.export(self.weights)
        await self.rollouts.engine.publish(version, self.weights)
        sampling = await self.rollouts.engine.fingerprint()
        if sampling != trained:
            raise EngineError(f"version {version} did not arrive: the engine holds {sampling}, the learner {trained}")
        self.version, self.fingerprint = version, trained


def make_domains(configs: Mapping[str, DomainConfig]) -> dict[str, Domain]:
    """The mixture's domains by name. Raises `ConfigError` for a name or a level that does not fit."""
    domains: dict[str, Domain] = {}
    for name, config in configs.items():
        domain: Domain = build("domain", {"name": config.source or name, **config.options})
        for level in config.levels:
            check_level(domain, level)
        if domain.name != name:
            raise ConfigError(f"the domain of table [domains.{name}] is named {domain.name}: name the table after it")
        domains[name] = domain
    return domains


def check_level(domain: Domain, level: int) -> None:
    if not 1 <= level <= domain.levels:
        raise ConfigError(f"domain {domain.name} has levels 1 to {domain.levels}, not {level}")


def engine_spec(engine: EngineConfig, model: Path, dtype: str | None) -> dict[str, object]:
    """What the engine is built from. An engine that has a `dtype` and is told none computes in the learner's.

    `dtype` is the learner's; None, where there is no learner, leaves the engine to its own default.
    """
    given: dict[str, object] = {"name": engine.name, "model": model, **engine.options}
    if dtype is not None and accepts("engine", engine.name, "dtype"):
        return {"dtype": dtype, **given}
    return given


def make_suite(config: RunConfig, domains: Mapping[str, Domain]) -> Suite:
    """The run's fixed evaluation suite; its sampling seed is kept apart from the run's."""
    levels = {name: config.domains[name].levels for name in domains}
    return build_suite(domains, levels, tasks=config.evaluation.tasks, seed=config.evaluation.seed)


@contextlib.asynccontextmanager
async def start(
    config: RunConfig, domains: Mapping[str, Domain], observer: Observer, *, logs: Path
) -> AsyncIterator[Parts]:
    """Start every part; on the way out, however that comes about, stop every part that was started."""
    model = resolve(config.model)
    async with contextlib.AsyncExitStack() as stack:
        learners = asyncio.ensure_future(_learners(config, logs))
        try:
            rollouts = await stack.enter_async_context(
                start_rollouts(
                    config.engine,
                    config.sandbox,
                    model,
                    domains,
                    observer,
                    logs=logs,
                    dtype=config.learner.dtype,
                    system_prompt=config.system_prompt,
                )
            )
        finally:
            await asyncio.wait([learners])
            if learners.exception() is None:
                stack.push_async_callback(learners.result().close)
        weights = _weights_folder(logs)
        stack.callback(shutil.rmtree, weights, ignore_errors=True)
        yield Parts(
            config=config,
            rollouts=rollouts,
            suite=make_suite(config, domains),
            learner=learners.result(),
            observer=observer,
            weights=weights,
        )


@contextlib.asynccontextmanager
async def start_learner(config: RunConfig, *, logs: Path) -> AsyncIterator[Learner]:
    """The learning half alone."""
    learner = await _learners(config, logs)
    try:
        yield learner
    finally:
        await learner.close()


async def _learners(config: RunConfig, logs: Path) -> LearnerGroup:
    critic = any(isinstance(stage, RlStage) and stage.critic is not None for stage in config.stages)
    learner = config.learner
    options = {"model": resolve(config.model), "dtype": learner.dtype, "critic": critic}
    adapter = {"lora": learner.lora, "seed": config.seed}
    return await start_learners({**options, **adapter, **learner.options}, learner.placement, logs)


@contextlib.asynccontextmanager
async def start_rollouts(
    engine: EngineConfig,
    sandbox: Mapping[str, object],
    model: Path,
    domains: Mapping[str, Domain],
    observer: Observer,
    *,
    logs: Path,
    dtype: str | None = None,
    system_prompt: str | None = None,
) -> AsyncIterator[Rollouts]:
    """The sampling half alone; `dtype` as in `engine_spec`."""
    observer.phase("loading the model")
    async with contextlib.AsyncExitStack() as stack:
        box: Sandbox | None = None
        if any(domain.needs_sandbox for domain in domains.values()):
            box = build("sandbox", sandbox)
            stack.push_async_callback(box.close)
        pool = await start_engines(engine_spec(engine, model, dtype), engine.placement, logs)
        stack.push_async_callback(pool.close)
        renderer = ChatRenderer.load(model, system_prompt)
        max_context = (await pool.capabilities()).max_context
        yield Rollouts(
            domains=domains,
            renderer=renderer,
            sandbox=box,
            engine=pool,
            roller=Roller(domains, pool, renderer, box, outcome_reward, max_context),
        )


def _weights_folder(logs: Path) -> Path:
    """In memory where the system has a place for it. Named after the run: a killed run leaves at most one behind."""
    memory = Path("/dev/shm")
    base = memory if memory.is_dir() else Path(tempfile.gettempdir())
    return base / f"posttrain-{stable_hash(str(logs.resolve())):016x}"
