"""The reinforcement-learning loop: one program for every staleness bound; the synchronous run is bound zero.

             claims groups_per_step slots              takes groups_per_step filled slots
    mixture ─▶ ROLLER ─────────── wave of groups ─────────▶ TRAINER ─▶ credit ─▶ learner.step ─▶ version + 1
                 ▲   waits for free slots                     │ waits for filled slots             │
                 │   woken by `published`                     │ woken by `fill`                    ▼
                 └──────────────────── slots are freed ◀── engine.publish ◀── learner.export ◀─────┘

There are (max_staleness + 1) × groups_per_step slots, and a slot stays charged until weights that learned from it have
arrived in the engine: the bound holds by admission, and nothing finished is thrown away (law L19). With bound zero the
roller starts a wave only when the last one has been learned from and published (law L20). A wave is claimed, rolled
and consumed whole, so what is drawn for step n is known when step n is checkpointed (law L21).
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Awaitable, Callable
from typing import Any

from posttrain.core.errors import NonFiniteError, PosttrainError, StoppedByRuleError
from posttrain.core.protocols import Advantage, Mixture
from posttrain.core.registry import build
from posttrain.core.types import Group, Json
from posttrain.run.audited import AuditedTruth
from posttrain.run.credit import Credit, credit
from posttrain.run.defence import inspect, quarantine_values, quarantined
from posttrain.run.drift import drift_values
from posttrain.run.health import Health, RollBack
from posttrain.run.held_out import HeldOutVerifiers
from posttrain.run.metrics import sandbox_values, step_values
from posttrain.run.parts import Parts
from posttrain.run.record import Recorder
from posttrain.run.rewarding import Rewarding
from posttrain.run.rl_stage import RlStage
from posttrain.run.steering import Steering
from posttrain.run.updates import Updates, update
from posttrain.run.waves import Wave, Waves
from posttrain.schedule.slots import Slots
from posttrain.schedule.staleness import staleness
from posttrain.store.position import Position

POOL = "default"


class RollBackRequested(Exception):
    """A rule sends the stage back to its last good checkpoint: a decision, not an error."""

    def __init__(self, roll_back: RollBack) -> None:
        super().__init__(roll_back.reason)
        self.roll_back = roll_back


class RlLoop:
    """One RL stage to its last step, or until a rule ends it."""

    def __init__(
        self,
        stage: RlStage,
        parts: Parts,
        recorder: Recorder,
        mixture: Mixture,
        health: Health,
        steering: Steering,
        on_evaluation: Callable[[int], Awaitable[None]],
    ) -> None:
        """It begins behind the step at which `recorder.state` stands."""
        self.stage = stage
        self.parts = parts
        self.recorder = recorder
        self.mixture = mixture
        self.health = health
        self.on_evaluation = on_evaluation
        self.held_out = HeldOutVerifiers(parts.config.domains, recorder.logs)
        self.audited = AuditedTruth(
            recorder.directory,
            parts.config.domains,
            since={domain: Position(recorder.state.stage, step) for domain, step in recorder.state.lifted.items()},
        )
        self.history = [record.values for record in recorder.history()]
        self.first_step = recorder.state.step
        self.steering = _by_rules(steering, health)
        self.rewarding = Rewarding(stage, {name: parts.config.reward_of(name) for name in parts.config.domains})
        self.advantage: Advantage = build("advantage", stage.advantage)
        self.slots = Slots(stage.groups_per_step, stage.max_staleness)
        self.rolled = Waves(stage, parts, mixture, retry=len(health.roll_backs))
        self.waves: dict[int, Wave] = {}
        """Rolled and not yet learned from, by the step that consumes them."""
        self._rolling: asyncio.Future[Wave] | None = None
        self.before: dict[int, Json] = {}
        """The mixture's state before each such wave was drawn: where a resumed run draws again."""

    async def run(self) -> None:
        """Roll and train until the stage's last step. Raises the first error of either side, or `RollBackRequested`."""
        roller = asyncio.ensure_future(self._roll())
        trainer = asyncio.ensure_future(self._train())
        try:
            await asyncio.wait([roller, trainer], return_when=asyncio.FIRST_EXCEPTION)
            for side in (roller, trainer):
                if side.done():
                    side.result()
        except RollBackRequested:
            if self._rolling is not None:  # the engines are used again: they finish what they are at
                await asyncio.wait([self._rolling])
            raise
        finally:
            sides: list[asyncio.Future[Any]] = [roller, trainer]
            if self._rolling is not None:
                sides.append(self._rolling)
            for unfinished in sides:
                unfinished.cancel()
            await asyncio.gather(*sides, return_exceptions=True)
            await self.held_out.close()

    async def _roll(self) -> None:
        for number in range(self.first_step, self.stage.steps):
            slots = [await self.slots.claim(POOL) for _ in range(self.stage.groups_per_step)]
            # A wave may be drawn as soon as so many steps are done: for what was paused later it is too late, here and
            # on resume alike.
            self.mixture.pause(self.health.paused(number - self.stage.max_staleness))
            self.before[number] = self.mixture.state()
            self._rolling = asyncio.ensure_future(self.rolled.roll(number))
            wave = self.waves[number] = await asyncio.shield(self._rolling)
            for slot, group in zip(slots, wave.groups, strict=True):
                slot.fill(group)

    async def _train(self) -> None:
        for step in range(self.first_step, self.stage.steps):
            groups = await self.slots.take(self.stage.groups_per_step)
            await self._learn(step, groups)
            self.slots.published(self.parts.version)

    async def _learn(self, step: int, groups: list[Group]) -> None:
        """One step: credit, one or several updates, publication, records."""
        parts, wave = self.parts, self.waves.pop(step)
        oldest = self._check_staleness(step, groups)
        inspected = await inspect([*groups, *wave.replaced], self.held_out)
        self.health.look(step + 1, inspected.values)
        admitted = quarantined(inspected.groups, self.health.quarantines, self.health.paused(step))
        lowered = self.steering.parts
        rewarded = self.rewarding.rewarded(admitted, step + 1, lowered)
        groups, wave = rewarded[: len(groups)], dataclasses.replace(wave, replaced=rewarded[len(groups) :])
        started = time.monotonic()
        try:
            credited, done = await self._update(step, groups)
        except NonFiniteError as error:
            self.recorder.trajectories(step + 1, groups)
            raise NonFiniteError(f"step {step + 1} of stage {self.stage.name}: {error}") from error
        learned = time.monotonic()
        await parts.publish(parts.version + 1)
        published = time.monotonic()
        for group in [*wave.replaced, *groups]:
            self.mixture.observe(group)
        seconds = {
            "generate_s": wave.generate_s,
            "learn_s": learned - started,
            "publish_s": published - learned,
            "step_s": wave.generate_s + published - started,
        }
        values = {
            **step_values(groups, done.metrics, credited.selection, staleness=oldest, seconds=seconds),
            **wave.values(),
            **inspected.values,
            **quarantine_values([t for group in rewarded for t in group.trajectories]),
            **self.audited.values(),
            **self.rewarding.values(groups, step + 1, lowered),
            **sandbox_values(parts.rollouts.sandbox),
            **self.steering.values(),
            **self.health.values(),
            "updates": float(done.done),
            "updates_left_out": float(done.planned - done.done),
        }
        if credited.kl is not None:
            values["kl"] = credited.kl
        values |= drift_values([*self.history, values])
        self.history.append(values)
        await self._record(step + 1, groups, wave, values)

    async def _update(self, step: int, groups: list[Group]) -> tuple[Credit, Updates]:
        stage, learner = self.stage, self.parts.learner
        in_reward = self.steering.kl_in_reward(stage)
        credited = await credit(groups, stage, self.advantage, learner, kl_in_reward=in_reward)
        self.parts.observer.phase("learning")
        seed = self.parts.config.seed
        done = await update(credited.selection.samples, stage, self.steering, learner, seed=seed, step=step)
        return credited, done

    async def _record(self, step: int, groups: list[Group], wave: Wave, values: dict[str, float]) -> None:
        """`step` counts from 1. What follows a measurement moves here, before the checkpoint that must hold it."""
        stage = self.stage
        self.recorder.trajectories(step, [*groups, *wave.replaced])
        response = self.health.observe(self.recorder.step(step, values))
        self.parts.observer.step(step, values)
        for sentence in response.sentences:
            self.parts.observer.note(sentence)
        if response.roll_back is not None:
            raise RollBackRequested(response.roll_back)
        before, self.steering = self.steering.parts, _by_rules(self.steering.after(values, stage), self.health)
        position = Position(self.recorder.state.stage, step)
        self.recorder.weights(step, self.rewarding.changes(position, before, self.steering.parts, response.lowered))
        if stage.kl is not None and stage.kl.refresh_every_steps and step % stage.kl.refresh_every_steps == 0:
            await self.parts.learner.refresh_reference()
            self.recorder.reference(self.parts.version, self.parts.fingerprint)
        self.before.pop(step - 1)
        stop = response.stop or self._all_paused(step)
        if stop is not None:
            await self._checkpoint(step)
            raise StoppedByRuleError(f"stage {stage.name} was stopped after step {step}: {stop}")
        if stage.evaluate_every_steps and step % stage.evaluate_every_steps == 0 and step < stage.steps:
            await self.on_evaluation(step)
        if self.recorder.checkpoint_due(step, stage.steps):
            await self._checkpoint(step)

    async def _checkpoint(self, step: int) -> None:
        mixture = self.before.get(step, self.mixture.state())
        await self.recorder.checkpoint(step, mixture=mixture, steering=self.steering, good=self.health.good)

    def _all_paused(self, step: int) -> str | None:
        """Why nothing is left to learn, where that is so."""
        paused = self.health.paused(step)
        if self.parts.config.domains.keys() - paused.keys():
            return None
        return "every domain is paused; " + "; ".join(f"{domain}: {reason}" for domain, reason in paused.items())

    def _check_staleness(self, step: int, groups: list[Group]) -> int:
        oldest = staleness(groups, self.parts.version)
        if oldest > self.stage.max_staleness:
            raise PosttrainError(
                f"step {step} of stage {self.stage.name} would learn from tokens {oldest} versions old; "
                f"the bound is {self.stage.max_staleness}"
            )
        return oldest


def _by_rules(steering: Steering, health: Health) -> Steering:
    """With the factors that the rules have set."""
    return dataclasses.replace(steering, learning_rate=health.learning_rate_factor, parts=health.part_factors)
