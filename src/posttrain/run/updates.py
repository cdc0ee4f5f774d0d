"""One step's samples → its optimizer updates: one or several, over whole groups, until the policy has moved enough.

Which samples an update sees is a function of the seed and the step (law L21). It computes no credit.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from posttrain.core.protocols import Learner, StepMetrics
from posttrain.core.seeding import stable_random
from posttrain.core.types import Sample
from posttrain.run.rl_stage import RlStage
from posttrain.run.steering import Steering


@dataclass(frozen=True)
class Updates:
    """What was done of what was planned."""

    metrics: StepMetrics
    """Of all updates together: means over their loss tokens, sums of tokens and seconds; the rate of the last."""
    done: int
    planned: int


async def update(
    samples: Sequence[Sample], stage: RlStage, steering: Steering, learner: Learner, *, seed: int, step: int
) -> Updates:
    """Learn from `samples`. Raises what `learner.step` raises; earlier updates of the step then stay."""
    plan = batches(samples, stage, seed=seed, step=step)
    done: list[StepMetrics] = []
    for number, batch in enumerate(plan):
        done.append(await learner.step(batch, steering.controls(stage, further_update=number > 0)))
        if stage.max_update_kl and done[-1].values.get("mismatch_kl", 0.0) > stage.max_update_kl:
            break
    return Updates(combined(done), len(done), len(plan))


def batches(samples: Sequence[Sample], stage: RlStage, *, seed: int, step: int) -> list[list[Sample]]:
    """`epochs × updates_per_step` batches of whole groups. The first epoch keeps the groups' order."""
    groups: dict[str, list[Sample]] = {}
    for sample in samples:
        groups.setdefault(sample.group_id, []).append(sample)
    plan: list[list[Sample]] = []
    for epoch in range(stage.epochs):
        order = list(groups)
        if epoch:
            stable_random("updates", seed, stage.name, step, epoch).shuffle(order)
        borders = [len(order) * part // stage.updates_per_step for part in range(stage.updates_per_step + 1)]
        for start, stop in itertools.pairwise(borders):
            plan.append([sample for group in order[start:stop] for sample in groups[group]])
    # Fewer groups with signal than updates: an update without samples would only move Adam's clock.
    return [batch for batch in plan if batch] or [[]]


def combined(parts: Sequence[StepMetrics]) -> StepMetrics:
    """One record of several updates. A single one is returned as it is."""
    if len(parts) == 1:
        return parts[0]
    tokens = [part.num_loss_tokens for part in parts]
    weights = tokens if sum(tokens) else [1] * len(parts)
    return StepMetrics(
        loss=_mean([part.loss for part in parts], weights),
        grad_norm=_mean([part.grad_norm for part in parts], weights),
        learning_rate=parts[-1].learning_rate,
        num_loss_tokens=sum(tokens),
        num_computed_tokens=sum(part.num_computed_tokens for part in parts),
        values={name: _value(name, [part.values for part in parts], weights) for name in parts[0].values},
        wall_s=sum(part.wall_s for part in parts),
    )


def _value(name: str, parts: Sequence[Mapping[str, float]], weights: Sequence[int]) -> float:
    """Maxima stay maxima and counts sums; everything else is a mean over loss tokens."""
    values = [part[name] for part in parts if name in part]
    if name.endswith("_max"):
        return max(values)
    if name in ("empty_step", "samples_without_loss_tokens"):
        return sum(values)
    return _mean(values, [weight for part, weight in zip(parts, weights, strict=True) if name in part])


def _mean(values: Sequence[float], weights: Sequence[int]) -> float:
    return sum(value * weight for value, weight in zip(values, weights, strict=True)) / sum(weights)
