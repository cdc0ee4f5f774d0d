"""Groups → rows to learn from, in three steps: annotate (what needs the model), advantages (pure), selection.

Statistics come first and filters after (law L9). What was left out is counted, by reason. What the loss alone needs
of the model is asked only for the rows that are learned from.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from posttrain.core.protocols import Advantage, Learner, ValueTargets
from posttrain.core.types import Annotations, FloatArray, Group, Sample
from posttrain.learn.samples import Selection, sample_of, to_samples
from posttrain.run.rl_stage import RlStage


@dataclass(frozen=True)
class Credit:
    """The step's rows, with everything that the stage's losses read, and what was left out."""

    selection: Selection
    kl: float | None = None
    """Mean of log policy − log reference over the sampled tokens, where the KL stands in the reward: nats a token."""


async def credit(
    groups: Sequence[Group], stage: RlStage, advantage: Advantage, learner: Learner, *, kl_in_reward: float = 0.0
) -> Credit:
    """`kl_in_reward` is the present coefficient."""
    annotations = await _annotate(groups, stage, advantage, learner, kl_in_reward)
    selection = to_samples(
        groups,
        advantage(groups, annotations),
        truncated=stage.truncated,
        silent_groups=stage.silent_groups,
        reduction=stage.reduction,
        fixed_length_tokens=stage.fixed_length_tokens,
        temperature=stage.temperature,
    )
    samples = selection.samples
    if stage.critic is not None:
        assert isinstance(advantage, ValueTargets), "a critic needs an advantage that says what it is to predict"
        targets = _by_id(groups, advantage.value_targets(groups, annotations))
        samples = [
            dataclasses.replace(s, values=annotations.values[s.trajectory_id], returns=targets[s.trajectory_id])
            for s in samples
        ]
    if stage.kl is not None and stage.kl.place == "loss" and samples:
        rows = await learner.logprobs(samples, reference=True)
        samples = [dataclasses.replace(s, reference_logprobs=row) for s, row in zip(samples, rows, strict=True)]
    return Credit(dataclasses.replace(selection, samples=samples), _mean_kl(groups, annotations))


async def _annotate(
    groups: Sequence[Group], stage: RlStage, advantage: Advantage, learner: Learner, kl_in_reward: float
) -> Annotations:
    """Of every scored attempt, where the advantages need it."""
    if not (advantage.needs_values or kl_in_reward):
        return Annotations()
    scored = [t for group in groups for t in group.trajectories if t.scored]
    rows = [sample_of(trajectory, stage.temperature) for trajectory in scored]
    annotations = Annotations(kl_in_reward=kl_in_reward)
    if advantage.needs_values:
        annotations = dataclasses.replace(annotations, values=_rows(rows, await learner.values(rows)))
    if kl_in_reward:
        annotations = dataclasses.replace(
            annotations,
            policy_logprobs=_rows(rows, await learner.logprobs(rows)),
            reference_logprobs=_rows(rows, await learner.logprobs(rows, reference=True)),
        )
    return annotations


def _mean_kl(groups: Sequence[Group], annotations: Annotations) -> float | None:
    differences = [
        (annotations.policy_logprobs[t.trajectory_id] - annotations.reference_logprobs[t.trajectory_id])[t.sampled]
        for group in groups
        for t in group.trajectories
        if t.trajectory_id in annotations.reference_logprobs
    ]
    return float(np.concatenate(differences).mean(dtype=np.float64)) if differences else None


def _rows(samples: Sequence[Sample], rows: Sequence[FloatArray]) -> Mapping[str, FloatArray]:
    return {sample.trajectory_id: row for sample, row in zip(samples, rows, strict=True)}


def _by_id(groups: Sequence[Group], rows: Sequence[Sequence[FloatArray]]) -> Mapping[str, FloatArray]:
    return {
        trajectory.trajectory_id: row
        for group, rows_G in zip(groups, rows, strict=True)
        for trajectory, row in zip(group.trajectories, rows_G, strict=True)
    }
