"""A group's verdicts → its rewards, by a `RewardSpec` and the weights of the step.

The parts of siblings are found together, since efficiency compares them. A part that an incorrect verdict does not
have counts as 0, for nothing was shown; a correct verdict without it is a mistake of domain or configuration, and
refused. Attempts without a verdict stay without a reward (law L23). It changes no verdict.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from posttrain.core.errors import ConfigError
from posttrain.core.types import Group, Reward, Trajectory, Verdict, VerdictStatus
from posttrain.rewards.compose import compose
from posttrain.rewards.efficiency import is_correct, savings
from posttrain.rewards.spec import COSTS, GRAMMAR, SCORE, PartSpec, RewardSpec

Grammar = Callable[[str], float]
"""How well a reply is formed, in [0, 1]."""


def rewarded(group: Group, spec: RewardSpec, weights: Mapping[str, float], grammar: Grammar) -> Group:
    """The same attempts with the rewards of `spec`. Raises `ConfigError` where a correct verdict lacks a part."""
    saved = {name: savings(group, p.source, p.budget) for name, p in spec.parts.items() if p.source in COSTS}

    def reward(trajectory: Trajectory) -> Reward:
        parts = {
            name: saved[name].get(trajectory.trajectory_id, 0.0)
            if name in saved
            else _measured(name, part, trajectory, grammar)
            for name, part in spec.parts.items()
        }
        gates = {name: parts[name] >= part.gate for name, part in spec.parts.items() if part.gate}
        waiting = tuple(name for name, part in spec.parts.items() if part.after_correctness)
        return compose(
            parts,
            weights,
            gates,
            withheld=() if is_correct(trajectory) else waiting,
            null_levels={name: part.null_level for name, part in spec.parts.items() if part.null_level},
        )

    scored = [dataclasses.replace(t, reward=reward(t)) if t.scored else t for t in group.trajectories]
    return dataclasses.replace(group, trajectories=tuple(scored))


def lacks(verdict: Verdict, part: PartSpec) -> bool:
    """Whether the part is one of the verdict's own that it does not have."""
    return part.source not in (SCORE, GRAMMAR, *COSTS) and part.source not in verdict.parts


def _measured(name: str, part: PartSpec, trajectory: Trajectory, grammar: Grammar) -> float:
    verdict = trajectory.verdict
    assert verdict is not None, f"trajectory {trajectory.trajectory_id} has no verdict"
    if part.source == SCORE:
        return verdict.score
    if part.source == GRAMMAR:
        return grammar(trajectory.reply)
    if lacks(verdict, part) and verdict.status is VerdictStatus.CORRECT:
        raise ConfigError(
            f"the reward of domain {trajectory.task.domain} has a part {name!r}, and a correct verdict of the domain "
            f"has no {part.source!r} (it has: {', '.join(sorted(verdict.parts)) or 'no parts'})"
        )
    return verdict.parts.get(part.source, 0.0)
