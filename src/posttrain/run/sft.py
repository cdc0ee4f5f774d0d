"""Supervised fine-tuning on the domains' demonstrations: the same learner, samples and records as RL.

Which demonstrations a step sees is a function of the seed and the step (law L21). The stage ends after `max_steps`
or by its plateau rule, which is part of the configuration. It samples nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from posttrain.core.errors import ConfigError
from posttrain.core.protocols import Domain, StageSpec
from posttrain.core.seeding import stable_hash, stable_random
from posttrain.core.types import Sample, Split, Task
from posttrain.gate.suite import check_disjoint
from posttrain.learn.samples import demonstration_sample
from posttrain.rollout.render import Renderer, demonstration_tokens
from posttrain.run.config import PlateauConfig, RunConfig, SftStage
from posttrain.run.metrics import learner_values
from posttrain.run.parts import Parts
from posttrain.run.record import Recorder


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

    def __init__(self, stage: SftStage, parts: Parts, recorder: Recorder, *, first_step: int, plateau: Plateau) -> None:
        self.stage = stage
        self.parts = parts
        self.recorder = recorder
        self.first_step = first_step
        self.plateau = plateau
        self.training, self.validation = _samples(stage, parts)

    async def run(self) -> int:
        """Train until the end of the stage; returns the number of steps taken."""
        stage, parts = self.stage, self.parts
        for step in range(self.first_step, stage.max_steps):
            parts.observer.phase("learning from demonstrations")
            metrics = await parts.learner.step(self._batch(step))
            values = learner_values(metrics)
            values["tokens_per_s"] = metrics.num_computed_tokens / max(metrics.wall_s, 1e-9)
            values["time/step_s"] = metrics.wall_s
            done = False
            if stage.plateau is not None and (step + 1) % stage.plateau.every_steps == 0:
                values["validation_loss"] = await self._validation_loss()
                done = self.plateau.reached(values["validation_loss"], stage.plateau)
            self.recorder.step(step + 1, values)
            parts.observer.step(step + 1, values)
            if done:
                parts.observer.note(
                    f"{stage.name} reached its plateau after {step + 1} steps (validation loss {self.plateau.best:.4f})"
                )
                return step + 1
            if self.recorder.checkpoint_due(step + 1, stage.max_steps):
                await self.recorder.checkpoint(
                    step + 1, plateau={"best": self.plateau.best, "failures": self.plateau.failures}
                )
        return stage.max_steps

    def _batch(self, step: int) -> list[Sample]:
        """Demonstrations `step × size …` of an endless reading in epochs, each in its own keyed order."""
        size = self.stage.demonstrations_per_step
        batch: list[Sample] = []
        for position in range(step * size, (step + 1) * size):
            epoch, offset = divmod(position, len(self.training))
            batch.append(
                self.training[_order(self.parts.config.seed, self.stage.name, epoch, len(self.training))[offset]]
            )
        return batch

    async def _validation_loss(self) -> float:
        rows = await self.parts.learner.logprobs(self.validation)
        total = sum(float(row[sample.trainable].sum()) for row, sample in zip(rows, self.validation, strict=True))
        return -total / sum(sample.num_loss_tokens for sample in self.validation)


def sft_spec(stage: SftStage) -> StageSpec:
    return StageSpec(loss=stage.loss, optimizer=stage.optimizer, total_steps=stage.max_steps)


def _order(seed: int, stage: str, epoch: int, count: int) -> list[int]:
    order = list(range(count))
    stable_random("demonstrations", seed, stage, epoch).shuffle(order)
    return order


def num_held_out(stage: SftStage, num_domains: int) -> int:
    """Demonstrations of each domain that are kept for the plateau rule's measurements."""
    return -(-stage.plateau.validation_demonstrations // num_domains) if stage.plateau is not None else 0


def demonstrations(
    stage: SftStage, config: RunConfig, domains: Mapping[str, Domain]
) -> dict[str, list[tuple[Task, str]]]:
    """Of each domain, those held out first. Raises `ConfigError` where a domain has too few."""
    count = stage.demonstrations + num_held_out(stage, len(domains))
    return {
        name: distinct_demonstrations(domain, config.domains[name].levels, count, config.seed)
        for name, domain in domains.items()
    }


def _samples(stage: SftStage, parts: Parts) -> tuple[list[Sample], list[Sample]]:
    """Training and validation samples, no task in both and none of the evaluation suite."""
    training: list[Sample] = []
    validation: list[Sample] = []
    held_out = num_held_out(stage, len(parts.rollouts.domains))
    for name, pairs in demonstrations(stage, parts.config, parts.rollouts.domains).items():
        check_disjoint((task for task, _ in pairs), parts.suite)
        samples = [
            _sample(parts.rollouts.renderer, name, task, reply, whole_text=stage.whole_text) for task, reply in pairs
        ]
        validation += samples[:held_out]
        training += samples[held_out:]
    return training, validation


def distinct_demonstrations(domain: Domain, levels: Sequence[int], count: int, seed: int) -> list[tuple[Task, str]]:
    """`count` demonstrated training tasks that all differ. Raises `ConfigError` where the domain has fewer."""
    found: dict[str, tuple[Task, str]] = {}
    stream = stable_hash("demonstrations", seed)
    for index in range(20 * count):
        task = domain.task(Split.TRAIN, stream, index // len(levels), levels[index % len(levels)])
        reply = domain.demonstration(task)
        if reply is None:
            raise ConfigError(f"domain {domain.name} has no demonstrations: an sft stage cannot use it")
        found.setdefault(task.task_id, (task, reply))
        if len(found) == count:
            return list(found.values())
    raise ConfigError(
        f"domain {domain.name} has only {len(found)} distinct demonstrations at level {', '.join(map(str, levels))}; "
        f"the stage asks for {count}"
    )


def _sample(renderer: Renderer, domain: str, task: Task, reply: str, *, whole_text: bool) -> Sample:
    tokens, trainable = demonstration_tokens(renderer, task.prompt, reply)
    if whole_text:
        trainable = np.arange(len(tokens)) > 0
    return demonstration_sample(f"demonstration/{task.task_id}", domain, tokens, trainable)
