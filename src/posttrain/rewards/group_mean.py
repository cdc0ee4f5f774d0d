"""Advantages: what an attempt earned minus the mean of its group's scored attempts, on every token it sampled.

The group baseline of GRPO (Shao et al., arXiv:2402.03300, section 4.1.2) without its division by the group's standard
deviation, which favours groups that are almost solved or almost hopeless (Dr. GRPO: Liu et al., arXiv:2503.20783,
section 3.1). The attempt's own reward is in the mean, which shrinks the gradient by (G − 1)/G; `leave_one_out` is the
one without. It scales nothing and drops nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from posttrain.core.types import Annotations, FloatArray, Group
from posttrain.rewards.attempt_credit import attempt_credit
from posttrain.rewards.statistics import check_clip, deviations


@dataclass(frozen=True)
class GroupMean:
    clip: float = 10.0
    """Largest absolute advantage."""

    needs_values = False

    def __post_init__(self) -> None:
        check_clip(self.clip)

    def __call__(self, groups: Sequence[Group], annotations: Annotations) -> list[list[FloatArray]]:
        """`[P][G]` arrays of `[T]`; raises `NonFiniteError` where a scored attempt's reward is not finite."""
        return attempt_credit(groups, annotations, deviations, self.clip)
