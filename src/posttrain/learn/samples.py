"""Groups and their advantages → rows to learn from; demonstrations → rows to imitate.

Everything that is left out is left out here, after the statistics (law L9), and counted: attempts without a
verdict, groups without signal, truncated attempts where they are masked. It computes no advantage and reads no text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from posttrain.core.types import BoolArray, FloatArray, Group, IntArray, Sample, Trajectory

Truncated = Literal["keep", "mask"]
"""What becomes of an attempt that ran into its length limit: trained like any other, or not trained at all.
Neither adds an end token that was not sampled (law L13)."""


@dataclass(frozen=True)
class Selection:
    """Rows of one step, and what was left out of it."""

    samples: list[Sample]
    num_groups_without_signal: int
    """Every advantage of the group is 0; groups of one among them."""
    num_groups_of_one: int
    """One scored attempt only, so nothing to compare it with."""
    num_without_verdict: int
    """Attempts that a failure of ours left unscored."""
    num_masked_truncated: int
    """Truncated attempts not trained, in groups with signal."""


def to_samples(
    groups: Sequence[Group],
    advantages: Sequence[Sequence[FloatArray]],
    *,
    truncated: Truncated = "keep",
    temperature: float = 1.0,
) -> Selection:
    """One sample for each scored attempt of each group that has a signal.

    `advantages` is `[P][G]` of `[T]`, as `core.protocols.Advantage` returns it; `temperature` is the one that the
    attempts were sampled at.
    """
    samples: list[Sample] = []
    without_signal = of_one = without_verdict = masked = 0
    for group, advantages_G in zip(groups, advantages, strict=True):
        pairs = list(zip(group.trajectories, advantages_G, strict=True))
        scored = [(trajectory, credit) for trajectory, credit in pairs if trajectory.scored]
        without_verdict += len(pairs) - len(scored)
        of_one += len(scored) == 1
        if not any(credit.any() for _, credit in scored):
            without_signal += 1
            continue
        kept = [(t, credit) for t, credit in scored if not (truncated == "mask" and t.stop.truncated)]
        masked += len(scored) - len(kept)
        samples += [_sample(trajectory, credit, temperature) for trajectory, credit in kept]
    return Selection(samples, without_signal, of_one, without_verdict, masked)


def demonstration_sample(sample_id: str, domain: str, tokens: IntArray, trainable: BoolArray) -> Sample:
    """A row for supervised fine-tuning; any number of trainable turns, never token 0."""
    zeros = np.zeros(len(tokens), np.float32)
    return Sample(
        trajectory_id=sample_id,
        segment=0,
        group_id=sample_id,
        domain=domain,
        tokens=tokens,
        trainable=trainable,
        behavior_logprobs=zeros,
        advantages=zeros,
        loss_weights=np.ones(len(tokens), np.float32),
        versions=np.full(len(tokens), -1, np.int32),
    )


def _sample(trajectory: Trajectory, advantages: FloatArray, temperature: float) -> Sample:
    return Sample(
        trajectory_id=trajectory.trajectory_id,
        segment=0,
        group_id=trajectory.group_id,
        domain=trajectory.task.domain,
        tokens=trajectory.tokens,
        trainable=trajectory.sampled,
        behavior_logprobs=trajectory.behavior_logprobs,
        advantages=advantages,
        loss_weights=np.ones(len(trajectory.tokens), np.float32),
        versions=trajectory.versions,
        temperature=temperature,
    )
