"""Supervised fine-tuning on rows that are given (`run/demonstrations.py`); learner, samples and records are RL's.

Which rows a step sees is a function of the seed and the step (law L21). The stage ends after `max_steps` or by its
plateau rule, which is part of the configuration. It samples nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from posttrain.core.protocols import StageSpec
from posttrain.core.seeding import stable_random
from posttrain.core.types import Sample
from posttrain.run.config import PlateauConfig, SftStage
from posttrain.run.metrics import learner_values
from posttrain.run.parts import Parts
from posttrain.run.record import Recorder
from posttrain.run.rows import Rows


@dataclass
class Plateau:
    """The stopping rule's memory; it goes into every checkpoint."""

    best: float | None = None
    """The lowest validation loss so far; None before the first measurement."""
    failures: int = 0

    def reached(self, loss: float, rule: PlateauConfig) -> bool:
        """Take in one measurement; whether the rule now says stop."""
        if self.best is None or loss < self.best * (1.0 - rule.min_improvement):
            self.best, self.failures = loss, 0
        else:
            self.failures += 1
        return self.failures >= rule.patience


class SftLoop:
    """One SFT stage from `first_step` to its end."""

    def __init__(
        self,
        stage: SftStage,
        parts: Parts,
        recorder: Recorder,
        rows: Rows,
        *,
        first_step: int,
        plateau: Plateau,
        on_evaluation: Callable[[int], Awaitable[None]],
    ) -> None:
        """`on_evaluation` scores the policy that the engine holds, after the step whose number it is given."""
        self.stage = stage
        self.parts = parts
        self.recorder = recorder
        self.rows = rows
        self.first_step = first_step
        self.plateau = plateau
        self.on_evaluation = on_evaluation

    async def run(self) -> int:
        """Train until the end of the stage; returns the number of steps taken."""
        stage, parts = self.stage, self.parts
        for step in range(self.first_step + 1, stage.max_steps + 1):
            done = await self._learn(step)
            if done:
                parts.observer.note(
                    f"{stage.name} reached its plateau after {step} steps (validation loss {self.plateau.best:.4f})"
                )
                return step
            if stage.evaluates_after(step):
                await parts.publish(parts.version + 1)
                await self.on_evaluation(step)
            if self.recorder.checkpoint_due(step, stage.max_steps):
                await self.recorder.checkpoint(
                    step, plateau={"best": self.plateau.best, "failures": self.plateau.failures}
                )
        return stage.max_steps

    async def _learn(self, step: int) -> bool:
        """Take and record the step with this number; whether the plateau rule says that it was the last."""
        stage, parts = self.stage, self.parts
        parts.observer.phase("learning from demonstrations")
        metrics = await parts.learner.step(self._batch(step - 1))
        values = learner_values(metrics)
        values["tokens_per_s"] = metrics.num_computed_tokens / max(metrics.wall_s, 1e-9)
        values["time/step_s"] = metrics.wall_s
        if step == 1:
            values |= self.rows.values
        done = False
        if stage.validates_after(step):
            values["validation_loss"] = await self._validation_loss()
            done = stage.plateau is not None and self.plateau.reached(values["validation_loss"], stage.plateau)
        self.recorder.step(step, values)
        parts.observer.step(step, values)
        return done

    def _batch(self, step: int) -> list[Sample]:
        """Rows `step × size …` of an endless reading in epochs, each in its own keyed order."""
        size, rows = self.stage.demonstrations_per_step, self.rows.training
        batch: list[Sample] = []
        for position in range(step * size, (step + 1) * size):
            epoch, offset = divmod(position, len(rows))
            batch.append(rows[_order(self.parts.config.seed, self.stage.name, epoch, len(rows))[offset]])
        return batch

    async def _validation_loss(self) -> float:
        rows = await self.parts.learner.logprobs(self.rows.validation)
        pairs = list(zip(rows, self.rows.validation, strict=True))
        total = sum(float(row[sample.trainable].sum()) for row, sample in pairs)
        return -total / sum(sample.num_loss_tokens for sample in self.rows.validation)


def sft_spec(stage: SftStage) -> StageSpec:
    return StageSpec(losses=[stage.loss], optimizer=stage.optimizer, total_steps=stage.max_steps)


@functools.lru_cache(maxsize=2)  # a step spans two epochs at most, but for very few rows
def _order(seed: int, stage: str, epoch: int, count: int) -> list[int]:
    order = list(range(count))
    stable_random("demonstrations", seed, stage, epoch).shuffle(order)
    return order
