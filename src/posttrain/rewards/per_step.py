"""Advantages for trajectories of many turns: each turn is judged by what was earned from it on.

R_k = Σ_{j≥k} discount^{j−k} r_j over the turns, r_j what turn j's tokens earned (`rewards/token_rewards.py`), minus the
mean of the same among the siblings' turns of the same index. These are the step returns (eq. 7) and their comparison
of GiGPO (Feng et al., arXiv:2505.10978), without division by a standard deviation, and with "same turn" in the place
of its "same state of the environment", which text rarely repeats. Later turns get no credit for what was earned before
them, which the one credit of `group_mean` gives them.

A turn that no sibling has gets the whole attempt's credit instead, what it earned minus the group's mean, so that
every sampled token is judged (law L10). With one turn each this is `group_mean`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from posttrain.core.types import Annotations, FloatArray, Group, IntArray, Trajectory
from posttrain.rewards.statistics import Values, check_clip, deviations
from posttrain.rewards.token_rewards import on_tokens, token_rewards, total_reward


@dataclass(frozen=True)
class PerStep:
    discount: float = 1.0
    """Of what is earned one turn later, in [0, 1]. Below 1, attempts that earn the same in more turns earn less."""
    clip: float = 10.0
    """Largest absolute advantage."""

    needs_values = False

    def __post_init__(self) -> None:
        check_clip(self.clip)
        if not 0.0 <= self.discount <= 1.0:
            raise ValueError(f"discount must lie in [0, 1], not {self.discount}")

    def __call__(self, groups: Sequence[Group], annotations: Annotations) -> list[list[FloatArray]]:
        """`[P][G]` arrays of `[T]`; raises `NonFiniteError` where a scored attempt's reward is not finite."""
        return [self._group(group, annotations) for group in groups]

    def _group(self, group: Group, annotations: Annotations) -> list[FloatArray]:
        scored = {t.trajectory_id: t for t in group.trajectories if t.scored}
        returns = {name: self._returns(t, annotations) for name, t in scored.items()}
        earned = deviations(np.asarray([total_reward(t, annotations) for t in scored.values()], np.float64))
        credit = {name: np.full(len(returns[name]), whole) for name, whole in zip(scored, earned, strict=True)}
        for turn in range(max(map(len, returns.values()), default=0)):
            _compare(turn, returns, credit)
        return [
            on_tokens(t, credit[t.trajectory_id].clip(-self.clip, self.clip)[_turns(t)] if t.scored else 0.0)
            for t in group.trajectories
        ]

    def _returns(self, trajectory: Trajectory, annotations: Annotations) -> Values:
        """`[K]`, from each turn on."""
        rewards = token_rewards(trajectory, annotations)
        if not len(rewards):
            return np.asarray([total_reward(trajectory, annotations)], np.float64)
        num_turns = max(1, len(trajectory.turns))
        returns = np.bincount(_turns(trajectory), weights=rewards, minlength=num_turns).astype(np.float64)
        for turn in range(num_turns - 2, -1, -1):
            returns[turn] += self.discount * returns[turn + 1]
        return returns


def _compare(turn: int, returns: Mapping[str, Values], credit: Mapping[str, Values]) -> None:
    """Writes the turn's credit of each attempt that has such a turn, unless it is the only one."""
    there = [name for name, returns_K in returns.items() if len(returns_K) > turn]
    if len(there) > 1:
        compared = deviations(np.asarray([returns[name][turn] for name in there], np.float64))
        for name, value in zip(there, compared, strict=True):
            credit[name][turn] = value


def _turns(trajectory: Trajectory) -> IntArray:
    """`[n]`, the turn that each sampled token belongs to."""
    starts = [turn.start for turn in trajectory.turns]
    turns = np.searchsorted(starts, np.flatnonzero(trajectory.sampled), side="right") - 1
    return np.asarray(turns.clip(0), np.int32)
