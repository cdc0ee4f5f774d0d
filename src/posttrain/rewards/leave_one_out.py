"""Advantages of RLOO: what an attempt earned minus the mean of its siblings, itself left out.

Ahmadian et al., arXiv:2402.14740 (after Kool et al., 2019): A_i = r_i − 1/(G − 1) Σ_{j≠i} r_j. The baseline does not
depend on the attempt that it judges, so the policy gradient is unbiased. It equals G/(G − 1) times `group_mean`.
It scales nothing and drops nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from posttrain.core.types import Annotations, FloatArray, Group
from posttrain.rewards.attempt_credit import attempt_credit
from posttrain.rewards.statistics import Values, check_clip


@dataclass(frozen=True)
class LeaveOneOut:
    clip: float = 10.0
    """Largest absolute advantage."""

    needs_values = False

    def __post_init__(self) -> None:
        check_clip(self.clip)

    def __call__(self, groups: Sequence[Group], annotations: Annotations) -> list[list[FloatArray]]:
        """`[P][G]` arrays of `[T]`; raises `NonFiniteError` where a scored attempt's reward is not finite."""
        return attempt_credit(groups, annotations, _against_the_others, self.clip)


def _against_the_others(earned: Values) -> Values:
    if len(earned) < 2:
        return np.zeros(len(earned), np.float64)
    shifted = earned - earned[0]  # equal rewards then differ by exactly 0 (law L7)
    others = (shifted.sum() - shifted) / (len(earned) - 1)
    return np.asarray(shifted - others, np.float64)
