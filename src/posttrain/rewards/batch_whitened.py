"""Advantages of REINFORCE++: each token's return, whitened over all trainable tokens of the step.

Hu et al., arXiv:2501.03262, "global advantage normalisation": A_t = Σ_{s≥t} r_s with the KL's cost in the tokens'
rewards, then (A − mean) / std over the tokens of the whole step, all groups and domains together. No siblings are
needed. Neither is an attempt compared with them: an easy task's attempts are all above average.

With `group_baseline` ("REINFORCE++ with baseline") the group's mean is subtracted first, so that hard and easy tasks
pull alike. The step's values are then centred already and are divided by their spread only: subtracting their mean
over tokens once more would hand a credit to groups in which all earned the same (law L7).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from posttrain.core.types import Annotations, FloatArray, Group
from posttrain.rewards.statistics import Values, check_clip, deviations, scaled
from posttrain.rewards.step_tokens import StepTokens
from posttrain.rewards.token_rewards import returns_to_go, total_reward


@dataclass(frozen=True)
class BatchWhitened:
    group_baseline: bool = False
    """Subtract the mean of what the group's scored attempts earned, before the step's statistics."""
    clip: float = 10.0
    """Largest absolute advantage."""

    needs_values = False

    def __post_init__(self) -> None:
        check_clip(self.clip)

    def __call__(self, groups: Sequence[Group], annotations: Annotations) -> list[list[FloatArray]]:
        """`[P][G]` arrays of `[T]`; raises `NonFiniteError` where a scored attempt's reward is not finite."""
        returns: dict[str, Values] = {}
        for group in groups:
            scored = [t for t in group.trajectories if t.scored]
            baseline = _mean([total_reward(t, annotations) for t in scored]) if self.group_baseline else 0.0
            returns |= {t.trajectory_id: returns_to_go(t, annotations) - baseline for t in scored}
        tokens = StepTokens(groups, returns)
        whitened = scaled(tokens.values if self.group_baseline else deviations(tokens.values))
        return tokens.spread(whitened.clip(-self.clip, self.clip))


def _mean(values: Sequence[float]) -> float:
    """Of equal values exactly that value."""
    return values[0] + float(np.mean([value - values[0] for value in values])) if values else 0.0
