"""Advantages: each attempt's reward minus the mean of its group's scored attempts, on every token it sampled.

The group baseline of GRPO (Shao et al., arXiv:2402.03300, section 4.1), by default without its division by the
group's standard deviation, which favours groups that are almost solved or almost hopeless (Liu et al.,
arXiv:2503.20783). Statistics are two-pass float64 over scored attempts only (laws L7, L9). It drops nothing: which
groups are learned from is decided afterwards (`learn/samples.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from posttrain.core.errors import NonFiniteError
from posttrain.core.types import FloatArray, Group, Trajectory

STD_FLOOR = 1e-4
"""Smallest standard deviation divided by; rewards closer than this are as good as equal."""


@dataclass(frozen=True)
class GroupMean:
    scale_by_std: bool = False
    """Divide by the group's (population) standard deviation."""
    clip: float = 10.0
    """Largest absolute advantage."""

    def __post_init__(self) -> None:
        if not self.clip > 0.0:
            raise ValueError(f"clip must be above 0, not {self.clip}")

    def __call__(self, groups: Sequence[Group]) -> list[list[FloatArray]]:
        """`[P][G]` arrays of `[T]`; raises `NonFiniteError` where a scored attempt's reward is not finite."""
        return [self._group(group) for group in groups]

    def _group(self, group: Group) -> list[FloatArray]:
        scored = [trajectory for trajectory in group.trajectories if trajectory.scored]
        credit = dict(zip((t.trajectory_id for t in scored), self._centred([_reward(t) for t in scored]), strict=True))
        return [
            np.where(t.sampled, np.float32(credit.get(t.trajectory_id, 0.0)), np.float32(0.0))
            for t in group.trajectories
        ]

    def _centred(self, rewards_G: Sequence[float]) -> list[float]:
        if not rewards_G:
            return []
        # Taken from the first reward before the mean is: equal rewards then differ by exactly 0, whatever they are.
        shifted = [reward - rewards_G[0] for reward in rewards_G]
        mean = math.fsum(shifted) / len(shifted)
        centred = [reward - mean for reward in shifted]
        if self.scale_by_std:
            std = math.sqrt(math.fsum(value * value for value in centred) / len(centred))
            centred = [value / max(std, STD_FLOOR) for value in centred]
        return [min(max(value, -self.clip), self.clip) for value in centred]


def _reward(trajectory: Trajectory) -> float:
    assert trajectory.reward is not None
    if not math.isfinite(trajectory.reward.total):
        raise NonFiniteError(f"the reward of trajectory {trajectory.trajectory_id} is {trajectory.reward.total}")
    return trajectory.reward.total
