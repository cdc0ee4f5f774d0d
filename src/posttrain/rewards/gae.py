"""Generalised advantage estimation over trainable tokens: the critic judges each token by what came of it.

Schulman et al., arXiv:1506.02438, eq. 16: A_t = Σ_l (γλ)^l δ_{t+l} with δ_t = r_t + γ V_{t+1} − V_t. The next token is
the next one that the policy sampled: what the environment wrote between two turns is passed over and discounts
nothing, so credit crosses the turns. After the last sampled token the value is 0: a truncated attempt ends there too,
for its limit is part of the task.

It trains no critic: `value_targets` says what the critic is to predict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from posttrain.core.errors import NonFiniteError
from posttrain.core.types import Annotations, FloatArray, Group, Trajectory
from posttrain.rewards.statistics import Values, check_clip, deviations, scaled
from posttrain.rewards.step_tokens import StepTokens
from posttrain.rewards.token_rewards import token_rewards


@dataclass(frozen=True)
class GAE:
    gamma: float = 1.0
    """Discount of each trainable token, in (0, 1]."""
    lam: float = 1.0
    """λ, in [0, 1]. At 1 the outcome reaches every token whole, whatever the critic says; below, a token k tokens
    before the end sees λ^k of it and trusts the critic for the rest."""
    whiten: bool = True
    """Centre and scale over all trainable tokens of the step."""
    clip: float = 10.0
    """Largest absolute advantage."""

    needs_values = True

    def __post_init__(self) -> None:
        check_clip(self.clip)
        if not 0.0 < self.gamma <= 1.0:
            raise ValueError(f"gamma must lie in (0, 1], not {self.gamma}")
        if not 0.0 <= self.lam <= 1.0:
            raise ValueError(f"lam must lie in [0, 1], not {self.lam}")

    def __call__(self, groups: Sequence[Group], annotations: Annotations) -> list[list[FloatArray]]:
        """`[P][G]` arrays of `[T]`; raises `NonFiniteError` where a reward or a value is not finite."""
        tokens = StepTokens(groups, self._by_attempt(groups, annotations))
        values = scaled(deviations(tokens.values)) if self.whiten else tokens.values
        return tokens.spread(values.clip(-self.clip, self.clip))

    def value_targets(self, groups: Sequence[Group], annotations: Annotations) -> list[list[FloatArray]]:
        """`[P][G]` arrays of `[T]`: the λ-return, advantage (neither whitened nor clipped) plus value."""
        raw = self._by_attempt(groups, annotations)
        scored = [t for group in groups for t in group.trajectories if t.scored]
        targets = {t.trajectory_id: raw[t.trajectory_id] + _values(t, annotations) for t in scored}
        tokens = StepTokens(groups, targets)
        return tokens.spread(tokens.values)

    def _by_attempt(self, groups: Sequence[Group], annotations: Annotations) -> dict[str, Values]:
        """`[n]` over the sampled tokens of each scored attempt."""
        scored = [t for group in groups for t in group.trajectories if t.scored]
        return {
            t.trajectory_id: self._advantages(token_rewards(t, annotations), _values(t, annotations)) for t in scored
        }

    def _advantages(self, rewards: Values, values: Values) -> Values:
        deltas = rewards + self.gamma * np.append(values[1:], 0.0)[: len(values)] - values
        result = np.zeros(len(deltas), np.float64)
        running = 0.0
        for place in range(len(deltas) - 1, -1, -1):
            running = deltas[place] + self.gamma * self.lam * running
            result[place] = running
        return result


def _values(trajectory: Trajectory, annotations: Annotations) -> Values:
    """`[n]`, the critic's before each sampled token."""
    name = trajectory.trajectory_id
    assert name in annotations.values, f"there are no values of trajectory {name}"
    values = annotations.values[name][trajectory.sampled].astype(np.float64)
    if not np.isfinite(values).all():
        raise NonFiniteError(f"the critic's values of trajectory {name} are not finite")
    return np.asarray(values, np.float64)
