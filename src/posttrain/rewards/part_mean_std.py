"""Advantages of GDPO: each part of the reward is normalised within the group by itself, then weighed and summed.

Liu et al., arXiv:2601.05242: for each reward k, A_k = (r_k − mean(r_k)) / std(r_k) within the group; A = Σ_k w_k A_k;
then A is normalised over the attempts of the step. Normalised together, as in `group_mean_std`, different mixtures of
parts come to the same total and the same credit, and a part that varies much drowns one that varies little.

The parts are as they count (`rewards/compose.py`): above chance, 0 behind a shut gate and where they wait for
correctness in vain, which is the paper's conditioned reward. What single turns earned, and the KL's cost, are one more
part of weight 1. The sums of every group are centred already: over the step they are divided by their spread only, so
that a group without differences has no credit at all (law L7). The standard deviation is the sample's plus
`STD_OFFSET`, as in `group_mean_std`. It drops nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from posttrain.core.types import Annotations, FloatArray, Group, Trajectory
from posttrain.rewards.compose import counted
from posttrain.rewards.kl_in_reward import kl_rewards
from posttrain.rewards.statistics import Values, check_clip, deviations, scaled
from posttrain.rewards.token_rewards import on_tokens, total_reward


@dataclass(frozen=True)
class PartMeanStd:
    clip: float = 10.0
    """Largest absolute advantage."""

    needs_values = False

    def __post_init__(self) -> None:
        check_clip(self.clip)

    def __call__(self, groups: Sequence[Group], annotations: Annotations) -> list[list[FloatArray]]:
        """`[P][G]` arrays of `[T]`; raises `NonFiniteError` where a scored attempt's reward is not finite."""
        scored = [[t for t in group.trajectories if t.scored] for group in groups]
        sums = np.concatenate([np.zeros(0), *(_sums(attempts, annotations) for attempts in scored)])
        names = [t.trajectory_id for attempts in scored for t in attempts]
        credit = dict(zip(names, scaled(sums).clip(-self.clip, self.clip).tolist(), strict=True))
        return [[on_tokens(t, credit.get(t.trajectory_id, 0.0)) for t in group.trajectories] for group in groups]


def _sums(attempts: Sequence[Trajectory], annotations: Annotations) -> Values:
    """`[G]`: the weighed sum of the parts, each normalised over `attempts`."""
    columns = [_columns(trajectory, annotations) for trajectory in attempts]
    sums = np.zeros(len(attempts), np.float64)
    for name in sorted({name for of_one in columns for name in of_one}):
        weights, values = zip(*(of_one.get(name, (0.0, 0.0)) for of_one in columns), strict=True)
        sums += np.asarray(weights, np.float64) * scaled(deviations(np.asarray(values, np.float64)))
    return sums


def _columns(trajectory: Trajectory, annotations: Annotations) -> dict[str, tuple[float, float]]:
    """`(weight, value)` by part; what was earned beside the reward stands under the empty name."""
    reward = trajectory.reward
    assert reward is not None, f"trajectory {trajectory.trajectory_id} was not scored"
    total_reward(trajectory, annotations)  # raises where something that was earned is not finite
    turns = [turn.reward for turn in trajectory.turns if not turn.done]
    beside = math.fsum([*turns, *kl_rewards(trajectory, annotations)])
    return {"": (1.0, beside), **{name: (reward.weights[name], value) for name, value in counted(reward).items()}}
