"""Named parts, their weights and gates make one total that can be computed again from what is recorded of it.

    total = Σ weight · (value − null level) / (1 − null level)

over the parts, where a part's value is what was measured, or 0 where a gate is shut or the part waits for correctness
in vain. Shutting a gate is thus never worth more than the worst answer, even where chance is subtracted. An attempt
without a verdict gets no reward rather than 0 (law L23). It does not centre, scale or spread credit.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from posttrain.core.types import Reward, Verdict, VerdictStatus


def compose(
    parts: Mapping[str, float],
    weights: Mapping[str, float],
    gates: Mapping[str, bool] | None = None,
    *,
    withheld: tuple[str, ...] = (),
    null_levels: Mapping[str, float] | None = None,
) -> Reward:
    """`parts` are raw; weights name the same parts, and whatever `withheld` and `null_levels` name is among them."""
    if parts.keys() != weights.keys():
        raise ValueError(f"parts {sorted(parts)} and weights {sorted(weights)} do not name the same things")
    if foreign := {*withheld, *(null_levels or {})} - parts.keys():
        raise ValueError(f"{sorted(foreign)} are none of the parts {sorted(parts)}")
    reward = Reward(0.0, dict(parts), dict(weights), dict(gates or {}), withheld, dict(null_levels or {}))
    return dataclasses.replace(reward, total=total(reward))


def counted(reward: Reward) -> dict[str, float]:
    """What each weight multiplies, by part."""
    open_ = all(reward.gates.values())
    values = {name: raw if open_ and name not in reward.withheld else 0.0 for name, raw in reward.parts.items()}
    return {name: _above_chance(value, reward.null_levels.get(name, 0.0)) for name, value in values.items()}


def total(reward: Reward) -> float:
    """Computed again from the parts: what `reward.total` is."""
    return math.fsum(value * reward.weights[name] for name, value in counted(reward).items())


def outcome_reward(verdict: Verdict) -> Reward | None:
    """The verdict's score and nothing else; None where there is no verdict to learn from."""
    if verdict.status is VerdictStatus.NO_VERDICT:
        return None
    return compose({"outcome": verdict.score}, {"outcome": 1.0})


def _above_chance(value: float, null_level: float) -> float:
    return (value - null_level) / (1.0 - null_level) if null_level else value
