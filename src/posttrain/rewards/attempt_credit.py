"""One credit for each attempt, found by comparing it with its siblings, on every token that it sampled.

What the group estimators share; each brings its own comparison. Statistics are over scored attempts only (law L9).
It drops nothing: which groups are learned from is decided afterwards (`learn/samples.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from posttrain.core.types import Annotations, FloatArray, Group
from posttrain.rewards.statistics import Values
from posttrain.rewards.token_rewards import on_tokens, total_reward


def attempt_credit(
    groups: Sequence[Group], annotations: Annotations, compare: Callable[[Values], Values], clip: float
) -> list[list[FloatArray]]:
    """`[P][G]` arrays of `[T]`. `compare` is given what a group's scored attempts earned, at least one.

    Raises `NonFiniteError` where a scored attempt's reward is not finite.
    """
    return [_group(group, annotations, compare, clip) for group in groups]


def _group(
    group: Group, annotations: Annotations, compare: Callable[[Values], Values], clip: float
) -> list[FloatArray]:
    earned = {t.trajectory_id: total_reward(t, annotations) for t in group.trajectories if t.scored}
    credit: dict[str, float] = {}
    if earned:
        compared = compare(np.asarray(list(earned.values()), np.float64)).clip(-clip, clip)
        credit = dict(zip(earned, compared.tolist(), strict=True))
    return [on_tokens(t, credit.get(t.trajectory_id, 0.0)) for t in group.trajectories]
