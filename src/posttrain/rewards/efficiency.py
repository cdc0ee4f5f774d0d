"""What an attempt saved: a share of a reference cost, between 0 and 1, never a penalty.

The reference is a stated budget or, without one, the median cost of the group's correct attempts, the attempt itself
among them. An attempt that costs as much or more saves nothing; equal costs, and a single correct attempt, give 0. Only
what is cheaper earns, so no call or token can pay by itself. Whether the value counts is not decided here.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from posttrain.core.types import Group, Trajectory, VerdictStatus


def savings(group: Group, cost: str, budget: float = 0.0) -> dict[str, float]:
    """By trajectory id, of scored attempts; relative to siblings, of correct ones alone."""
    scored = [t for t in group.trajectories if t.scored]
    if budget:
        return {t.trajectory_id: saved(cost_of(t, cost), budget) for t in scored}
    costs: Mapping[str, float] = {t.trajectory_id: cost_of(t, cost) for t in scored if is_correct(t)}
    median = statistics.median(costs.values()) if costs else 0.0
    return {name: saved(value, median) for name, value in costs.items()}


def saved(cost: float, reference: float) -> float:
    """Share of the reference that was not spent; 0 where there was nothing to save."""
    return max(0.0, 1.0 - cost / reference) if reference > 0.0 else 0.0


def cost_of(trajectory: Trajectory, cost: str) -> float:
    """A tool call is a turn that the environment answered and went on from."""
    match cost:
        case "tokens":
            return float(trajectory.cost.num_sampled_tokens)
        case "tool_calls":
            return float(sum(not turn.done for turn in trajectory.turns))
        case "wall_s":
            return trajectory.cost.wall_s
        case "sandbox_s":
            return trajectory.cost.sandbox_s
    raise AssertionError(f"no cost is called {cost!r}")


def is_correct(trajectory: Trajectory) -> bool:
    return trajectory.scored and trajectory.verdict is not None and trajectory.verdict.status is VerdictStatus.CORRECT
