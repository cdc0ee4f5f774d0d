"""Verdict → reward: named parts, their weights and gates make one total that can be recomputed from them.

A verdict that says nothing gets no reward rather than 0 (law L23). It does not centre, scale or spread credit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from posttrain.core.types import Reward, Verdict, VerdictStatus


def compose(
    parts: Mapping[str, float], weights: Mapping[str, float], gates: Mapping[str, bool] | None = None
) -> Reward:
    """`total` = the weighted sum of `parts`, or 0 where any gate is closed. Both name the same parts."""
    if parts.keys() != weights.keys():
        raise ValueError(f"parts {sorted(parts)} and weights {sorted(weights)} do not name the same things")
    gates = gates or {}
    total = math.fsum(parts[name] * weights[name] for name in parts) if all(gates.values()) else 0.0
    return Reward(total, dict(parts), dict(weights), dict(gates))


def outcome_reward(verdict: Verdict) -> Reward | None:
    """The verdict's score and nothing else; None where there is no verdict to learn from."""
    if verdict.status is VerdictStatus.NO_VERDICT:
        return None
    return compose({"outcome": verdict.score}, {"outcome": 1.0})
