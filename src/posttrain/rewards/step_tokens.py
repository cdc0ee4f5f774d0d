"""The sampled tokens of all scored attempts of a step in one row, for statistics over the step, and back.

It computes nothing with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from posttrain.core.types import FloatArray, Group
from posttrain.rewards.statistics import Values
from posttrain.rewards.token_rewards import on_tokens


class StepTokens:
    """`by_attempt` has `[n]` for each scored attempt, one value for each of its sampled tokens."""

    def __init__(self, groups: Sequence[Group], by_attempt: Mapping[str, Values]) -> None:
        self._groups = groups
        self._ids = list(by_attempt)
        self._borders = np.cumsum([len(values) for values in by_attempt.values()])[:-1]
        self.values: Values = np.concatenate([np.zeros(0, np.float64), *by_attempt.values()])  # [N]

    def spread(self, values: Values) -> list[list[FloatArray]]:
        """`[P][G]` arrays of `[T]` from `[N]`; 0 at tokens not sampled and in attempts without a verdict."""
        parts = dict(zip(self._ids, np.split(values, self._borders), strict=False))
        return [[on_tokens(t, parts.get(t.trajectory_id, 0.0)) for t in group.trajectories] for group in self._groups]
