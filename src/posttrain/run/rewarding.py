"""What attempts are worth in a step: each domain's parts under the weights of that step, then the penalty on length.

Rewards are given when a step learns, not when an attempt is rolled: the weights are then those of the step, however
far ahead it was rolled, and what is recorded is what was learned from. Pure: a function of
groups, configuration, step and what rules have lowered (law L21).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from posttrain.core.types import Group, Trajectory
from posttrain.rewards.efficiency import is_correct
from posttrain.rewards.group_reward import lacks, rewarded
from posttrain.rewards.overlong import penalise_overlong
from posttrain.rewards.saturation import saturated
from posttrain.rewards.spec import RewardSpec
from posttrain.run.part_rules import SATURATED
from posttrain.run.rl_stage import RlStage
from posttrain.store.position import Position
from posttrain.store.weight_changes import WeightChange
from posttrain.verifiers.reply_grammar import form

Lowered = Mapping[str, float]
"""Factors that rules have set, by DOMAIN/PART."""


@dataclass(frozen=True)
class Rewarding:
    """One stage's. Steps are counted from 1."""

    stage: RlStage
    specs: Mapping[str, RewardSpec]
    """By domain."""

    def weights(self, step: int, lowered: Lowered) -> dict[str, dict[str, float]]:
        """By domain and part."""
        return {domain: spec.weights_at(step, _of_domain(domain, lowered)) for domain, spec in self.specs.items()}

    def rewarded(self, groups: Sequence[Group], step: int, lowered: Lowered) -> list[Group]:
        """Raises `ConfigError` where a correct verdict lacks a part that its reward names."""
        weights = self.weights(step, lowered)
        given = [rewarded(group, self.specs[group.task.domain], weights[group.task.domain], form) for group in groups]
        if self.stage.truncated != "penalise":
            return given
        return penalise_overlong(given, self.stage.overlong_buffer_tokens)

    def values(self, groups: Sequence[Group], step: int, lowered: Lowered) -> dict[str, float]:
        """For the step's record, of rewards with several parts: `reward/DOMAIN/PART` is the mean of the raw part over
        scored attempts (over correct ones for efficiency), `reward_weight/…` its weight, `reward_saturated/…` the share
        of groups without anything left to learn of it, `reward_missing/…` that of verdicts without it."""
        weights = self.weights(step, lowered)
        by_domain: dict[str, list[Group]] = defaultdict(list)
        for group in groups:
            by_domain[group.task.domain].append(group)
        values: dict[str, float] = {}
        for domain, spec in sorted(self.specs.items()):
            if not spec.plain:
                values |= {f"reward_weight/{domain}/{name}": weight for name, weight in weights[domain].items()}
                values |= _values(domain, spec, by_domain[domain])
        return values

    def changes(
        self, position: Position, before: Lowered, after: Lowered, causes: Mapping[str, str]
    ) -> list[WeightChange]:
        """Of the weights from the step behind `position` on, in a fixed order; `causes` by DOMAIN/PART."""
        step = position.step
        old, new = self.weights(step, before), self.weights(step + 1, after)
        return [
            WeightChange(
                position.stage_index,
                step,
                domain,
                part,
                old[domain][part],
                new[domain][part],
                causes.get(f"{domain}/{part}", f"the schedule of step {step + 1}"),
            )
            for domain in sorted(self.specs)
            for part in sorted(self.specs[domain].parts)
            if old[domain][part] != new[domain][part] and step < self.stage.steps
        ]


def _values(domain: str, spec: RewardSpec, groups: Sequence[Group]) -> dict[str, float]:
    values: dict[str, float] = {}
    scored = [[t for t in group.trajectories if t.scored] for group in groups]
    attempts = [t for attempts_G in scored for t in attempts_G]
    for name, part in spec.parts.items():
        counted = [t for t in attempts if part.kind != "efficiency" or is_correct(t)]
        if counted:
            values[f"reward/{domain}/{name}"] = float(np.mean(_raw(counted, name)))
        comparable = [_raw(attempts_G, name) for attempts_G in scored if len(attempts_G) > 1]
        if comparable:
            values[f"{SATURATED}/{domain}/{name}"] = float(np.mean([saturated(raw_G) for raw_G in comparable]))
        missing = sum(t.verdict is not None and lacks(t.verdict, part) for t in attempts)
        if missing:
            values[f"reward_missing/{domain}/{name}"] = missing / len(attempts)
    return values


def _raw(attempts: Sequence[Trajectory], part: str) -> list[float]:
    return [t.reward.parts[part] for t in attempts if t.reward is not None]


def _of_domain(domain: str, lowered: Lowered) -> dict[str, float]:
    own = f"{domain}/"
    return {name.removeprefix(own): factor for name, factor in lowered.items() if name.startswith(own)}
