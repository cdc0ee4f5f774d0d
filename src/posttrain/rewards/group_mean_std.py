"""Advantages of GRPO: what an attempt earned, centred on its group's mean and divided by its group's spread.

Shao et al., arXiv:2402.03300, section 4.1.2: A_i = (r_i − mean(r_G)) / std(r_G). The paper does not say which standard
deviation; this is the sample's (G − 1 below), plus `STD_OFFSET`, as in TRL. The division gives every group the same
weight, however small its spread: groups that are almost solved or almost hopeless count more than their rewards say
(Liu et al., arXiv:2503.20783, section 3.1). It drops nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from posttrain.core.types import Annotations, FloatArray, Group
from posttrain.rewards.attempt_credit import attempt_credit
from posttrain.rewards.statistics import Values, check_clip, deviations, scaled


@dataclass(frozen=True)
class GroupMeanStd:
    clip: float = 10.0
    """Largest absolute advantage. Among G attempts (G − 1)/√G is the largest there can be."""

    needs_values = False

    def __post_init__(self) -> None:
        check_clip(self.clip)

    def __call__(self, groups: Sequence[Group], annotations: Annotations) -> list[list[FloatArray]]:
        """`[P][G]` arrays of `[T]`; raises `NonFiniteError` where a scored attempt's reward is not finite."""
        return attempt_credit(groups, annotations, _standardised, self.clip)


def _standardised(earned: Values) -> Values:
    return scaled(deviations(earned))
