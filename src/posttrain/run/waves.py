"""The rolling half of a step: tasks from the mixture → a wave of groups, those without signal replaced if asked for.

What a wave draws is a function of the mixture's state, the seed and the wave's number (law L21). Replaced groups are
kept beside the wave: they cost tokens and belong into the records. What an attempt is worth is decided when it is
learned from (`run/rewarding.py`). It learns nothing.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from posttrain.core.protocols import Mixture
from posttrain.core.types import Group
from posttrain.rewards.signal import has_signal
from posttrain.rollout.wave import GroupPlan
from posttrain.run.parts import Parts
from posttrain.run.rl_stage import RlStage


@dataclass(frozen=True)
class Wave:
    """What one step consumes, and what it took to get it."""

    groups: list[Group]
    replaced: list[Group]
    """Without signal, so not learned from; dynamic sampling put others in their place."""
    generate_s: float

    def values(self) -> dict[str, float]:
        """For the step's record: what dynamic sampling cost."""
        tokens = sum(t.cost.num_sampled_tokens for group in self.replaced for t in group.trajectories)
        return {"replaced_groups": float(len(self.replaced)), "replaced_tokens": float(tokens)}


class Waves:
    """Rolls wave after wave of one stage. `retry` keys the draws of a stage that went back to a checkpoint anew."""

    def __init__(self, stage: RlStage, parts: Parts, mixture: Mixture, retry: int = 0) -> None:
        self._stage = stage
        self._parts = parts
        self._mixture = mixture
        self._prefix = stage.name if retry == 0 else f"{stage.name}+{retry}"

    async def roll(self, number: int) -> Wave:
        """The wave that step `number`, counted from 0, learns from."""
        started = time.monotonic()
        count = self._stage.groups_per_step
        groups = await self._groups(number, 0, count)
        replaced: list[Group] = []
        for refill in range(self._stage.refill_rounds):
            silent = [place for place, group in enumerate(groups) if not has_signal(group)]
            if not silent:
                break
            fresh = await self._groups(number, count * (refill + 1), len(silent))
            for place, group in zip(silent, fresh, strict=True):
                replaced.append(groups[place])
                groups[place] = group
        return Wave(groups, replaced, time.monotonic() - started)

    async def _groups(self, number: int, first: int, count: int) -> list[Group]:
        observer = self._parts.observer
        observer.phase("generating and verifying", total=count * self._stage.group_size)
        plans = [self._plan(number, first + position) for position in range(count)]
        return await self._parts.rollouts.roller.roll(plans, on_done=observer.advance)

    def _plan(self, wave: int, position: int) -> GroupPlan:
        group_id = f"{self._prefix}-{wave:05d}-{position:04d}"
        return GroupPlan(
            group_id=group_id,
            task=self._mixture.next(),
            temperatures=(self._stage.temperature,) * self._stage.group_size,
            seed_parts=("rollout", self._parts.config.seed, group_id),
        )
