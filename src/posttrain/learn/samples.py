"""Groups and their advantages → rows to learn from; demonstrations → rows to imitate.

Everything that is left out is left out here, after the statistics (law L9), and counted: attempts without a
verdict, groups without signal, truncated attempts where they are masked. What is left out is in no term and in no
denominator (law L2). It computes no advantage and reads no text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from posttrain.core.types import BoolArray, FloatArray, Group, IntArray, Sample, Trajectory

Truncated = Literal["keep", "mask", "penalise"]
"""What becomes of an attempt that ran into its length limit: trained like any other, not trained at all, or trained
with the reward that `rewards/overlong.py` has lowered. None adds an end token that was not sampled (law L13)."""

Reduction = Literal["token_mean", "sequence_mean", "fixed_length"]
"""How a step's tokens become one loss. `token_mean`: the mean over all trained tokens, so long attempts count more
(DAPO, arXiv:2503.14476, eq. 12). `sequence_mean`: each attempt's mean over its tokens, then the mean over attempts, so
a token of a long attempt counts less (GRPO, arXiv:2402.03300, eq. 3). `fixed_length`: each attempt's sum over its
tokens divided by a constant, then the mean over attempts, so neither (Dr. GRPO, arXiv:2503.20783, section 3.2)."""

SilentGroups = Literal["leave_out", "keep"]
"""What becomes of a group in which every advantage is 0. `leave_out`: it costs no learning time, and the step's mean
is over what is left, so the fewer groups have a signal the more each counts (what dynamic sampling of DAPO,
arXiv:2503.14476, eq. 11, comes to). `keep`: it counts in the mean and is pulled by KL and entropy like any other, as
GRPO and RLOO state their objectives."""


@dataclass(frozen=True)
class Selection:
    """Rows of one step, and what was left out of it."""

    samples: list[Sample]
    num_groups_without_signal: int
    """Every advantage of the group is 0; groups of one among them. Counted whether left out or kept."""
    num_groups_of_one: int
    """One scored attempt only, so nothing to compare it with."""
    num_without_verdict: int
    """Attempts that a failure of ours left unscored."""
    num_quarantined: int
    """Attempts that a rule keeps out."""
    num_masked_truncated: int
    """Truncated attempts not trained, in groups that are."""


def to_samples(
    groups: Sequence[Group],
    advantages: Sequence[Sequence[FloatArray]],
    *,
    truncated: Truncated = "keep",
    silent_groups: SilentGroups = "leave_out",
    reduction: Reduction = "token_mean",
    fixed_length_tokens: int = 0,
    temperature: float = 1.0,
) -> Selection:
    """One sample for each scored attempt of each group that is learned from.

    `advantages` is `[P][G]` of `[T]`, as `core.protocols.Advantage` returns it. `fixed_length_tokens` 0: as many as
    the attempt's task allows it to sample. `temperature` is the one that the attempts were sampled at.
    """
    samples: list[Sample] = []
    without_signal = of_one = without_verdict = quarantined = masked = 0
    for group, advantages_G in zip(groups, advantages, strict=True):
        pairs = list(zip(group.trajectories, advantages_G, strict=True))
        scored = [(trajectory, credit) for trajectory, credit in pairs if trajectory.scored]
        without_verdict += sum(not trajectory.judged for trajectory, _ in pairs)
        quarantined += sum(trajectory.judged and not trajectory.scored for trajectory, _ in pairs)
        of_one += len(scored) == 1
        silent = not any(credit.any() for _, credit in scored)
        without_signal += silent
        if silent and silent_groups == "leave_out":
            continue
        kept = [(t, credit) for t, credit in scored if not (truncated == "mask" and t.stop.truncated)]
        masked += len(scored) - len(kept)
        for trajectory, credit in kept:
            sample = dataclasses.replace(sample_of(trajectory, temperature), advantages=credit)
            samples.append(_reduced(sample, reduction, fixed_length_tokens or _most_tokens(trajectory)))
    return Selection(samples, without_signal, of_one, without_verdict, quarantined, masked)


def sample_of(trajectory: Trajectory, temperature: float) -> Sample:
    """A trajectory as the learner reads it, without credit: for log-probs and values (`core.types.Annotations`)."""
    zeros = np.zeros(len(trajectory.tokens), np.float32)
    return Sample(
        trajectory_id=trajectory.trajectory_id,
        segment=0,
        group_id=trajectory.group_id,
        domain=trajectory.task.domain,
        tokens=trajectory.tokens,
        trainable=trajectory.sampled,
        behavior_logprobs=trajectory.behavior_logprobs,
        advantages=zeros,
        loss_weights=np.ones(len(trajectory.tokens), np.float32),
        versions=trajectory.versions,
        temperature=temperature,
    )


def demonstration_sample(
    sample_id: str, domain: str, tokens: IntArray, replies: BoolArray, prompt_loss_weight: float = 0.0
) -> Sample:
    """A row for supervised fine-tuning: `replies` [T], any number of turns, have weight 1, the others that of prompts.

    Token 0 is in no reply and never learned: nothing predicts it.
    """
    zeros = np.zeros(len(tokens), np.float32)
    weights = np.where(replies, np.float32(1.0), np.float32(prompt_loss_weight))
    return Sample(
        trajectory_id=sample_id,
        segment=0,
        group_id=sample_id,
        domain=domain,
        tokens=tokens,
        trainable=replies | (np.arange(len(tokens)) > 0) if prompt_loss_weight else replies,
        behavior_logprobs=zeros,
        advantages=zeros,
        loss_weights=weights,
        versions=np.full(len(tokens), -1, np.int32),
    )


def _reduced(sample: Sample, reduction: Reduction, length: int) -> Sample:
    """Loss weights and share of the denominator; Σ weight · term / Σ denominator is the reduction's name."""
    if reduction == "token_mean":
        return sample
    divisor = length if reduction == "fixed_length" else max(1, sample.num_loss_tokens)
    weights = np.full(len(sample.tokens), 1.0 / divisor, np.float32)
    return dataclasses.replace(sample, loss_weights=weights, denominator=1.0)


def _most_tokens(trajectory: Trajectory) -> int:
    limits = trajectory.task.limits
    return limits.max_new_tokens * limits.max_turns
