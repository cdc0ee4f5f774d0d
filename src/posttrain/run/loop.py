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
import time
from dataclasses import dataclass
from typing import Any

from posttrain.core.errors import PosttrainError
from posttrain.core.protocols import Advantage, Mixture, StageSpec
from posttrain.core.registry import build
from posttrain.core.types import Group, Json
from posttrain.rollout.wave import GroupPlan
from posttrain.run.config import RlStage
from posttrain.run.credit import credit
from posttrain.run.metrics import step_values
from posttrain.run.parts import Parts
from posttrain.run.record import Recorder
from posttrain.schedule.slots import Slots
from posttrain.schedule.staleness import staleness

POOL = "default"


@dataclass
class Wave:
    """What was claimed together: the step that consumes it, its groups' ids, the mixture before it was drawn."""

    number: int
    mixture_before: Json
    generate_s: float = 0.0


class RlLoop:
    """One RL stage from `first_step` to its end."""

    def __init__(self, stage: RlStage, parts: Parts, recorder: Recorder, mixture: Mixture, first_step: int) -> None:
        self.stage = stage
        self.parts = parts
        self.recorder = recorder
        self.mixture = mixture
        self.first_step = first_step
        self.advantage: Advantage = build("advantage", stage.advantage)
        self.needs_reference = rl_spec(stage).keep_reference
        self.slots = Slots(stage.groups_per_step, stage.max_staleness)
        self.waves: dict[int, Wave] = {}

    async def run(self) -> None:
        """Roll and train until the stage's last step. Raises the first error of either side."""
        roller = asyncio.ensure_future(self._roll())
        trainer = asyncio.ensure_future(self._train())
        try:
            await asyncio.wait([roller, trainer], return_when=asyncio.FIRST_EXCEPTION)
            for side in (roller, trainer):
                if side.done():
                    side.result()
        finally:
            for side in (roller, trainer):
                side.cancel()
            await asyncio.gather(roller, trainer, return_exceptions=True)

    async def _roll(self) -> None:
        stage, observer = self.stage, self.parts.observer
        for number in range(self.first_step, stage.steps):
            slots = [await self.slots.claim(POOL) for _ in range(stage.groups_per_step)]
            wave = self.waves[number] = Wave(number, self.mixture.state())
            plans = [self._plan(number, position) for position in range(stage.groups_per_step)]
            started = time.monotonic()
            observer.phase("generating and verifying", total=len(plans) * stage.group_size)
            groups = await self.parts.rollouts.roller.roll(plans, on_done=observer.advance)
            wave.generate_s = time.monotonic() - started
            for slot, group in zip(slots, groups, strict=True):
                slot.fill(group)

    def _plan(self, wave: int, position: int) -> GroupPlan:
        stage = self.stage
        group_id = f"{stage.name}-{wave:05d}-{position:04d}"
        return GroupPlan(
            group_id=group_id,
            task=self.mixture.next(),
            temperatures=(stage.temperature,) * stage.group_size,
            seed_parts=("rollout", self.parts.config.seed, group_id),
        )

    async def _train(self) -> None:
        for step in range(self.first_step, self.stage.steps):
            groups = await self.slots.take(self.stage.groups_per_step)
            await self._learn(step, groups)
            self.slots.published(self.parts.version)

    async def _learn(self, step: int, groups: list[Group]) -> None:
        stage, parts = self.stage, self.parts
        oldest = staleness(groups, parts.version)
        if oldest > stage.max_staleness:
            raise PosttrainError(
                f"step {step} of stage {stage.name} would learn from tokens {oldest} versions old; "
                f"the bound is {stage.max_staleness}"
            )
        started = time.monotonic()
        selection = await credit(
            groups,
            self.advantage,
            parts.learner,
            temperature=stage.temperature,
            truncated=stage.truncated,
            reference=self.needs_reference,
        )
        parts.observer.phase("learning")
        metrics = await parts.learner.step(selection.samples)
        learned = time.monotonic()
        await parts.publish(parts.version + 1)
        published = time.monotonic()
        wave = self.waves.pop(step)
        for group in groups:
            self.mixture.observe(group)
        seconds = {
            "generate_s": wave.generate_s,
            "learn_s": learned - started,
            "publish_s": published - learned,
            "step_s": wave.generate_s + published - started,
        }
        values = step_values(groups, metrics, selection, staleness=oldest, seconds=seconds)
        self.recorder.trajectories(step + 1, groups)
        self.recorder.step(step + 1, values)
        parts.observer.step(step + 1, values)
        if self.recorder.checkpoint_due(step + 1, stage.steps):
            following = self.waves.get(step + 1)
            await self.recorder.checkpoint(
                step + 1, mixture=following.mixture_before if following else self.mixture.state()
            )


def rl_spec(stage: RlStage) -> StageSpec:
    """What the learner is told; the loss says itself whether it needs the reference policy."""
    loss: dict[str, Any] = dict(stage.loss)
    return StageSpec(
        loss=loss,
        optimizer=stage.optimizer,
        total_steps=stage.steps,
        keep_reference=float(loss.get("kl_coefficient", 0.0)) > 0.0,
    )
