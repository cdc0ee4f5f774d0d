"""What a step rolls: its wave, and dynamic sampling's replacements."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from posttrain.core.types import (
    Group,
    Limits,
    Message,
    Reward,
    Role,
    Split,
    StopReason,
    Task,
    Trajectory,
    Turn,
    Verdict,
)
from posttrain.rollout.wave import GroupPlan
from posttrain.run.rl_stage import RlStage
from posttrain.run.waves import Wave, Waves

TOKENS = np.asarray([1, 2, 3], np.int32)
SAMPLED = np.asarray([False, True, True])


def attempt(plan: GroupPlan, sibling: int, score: float) -> Trajectory:
    return Trajectory(
        trajectory_id=f"{plan.group_id}/{sibling}",
        task=plan.task,
        group_id=plan.group_id,
        sibling=sibling,
        tokens=TOKENS,
        sampled=SAMPLED,
        behavior_logprobs=np.zeros(3, np.float32),
        versions=np.where(SAMPLED, 0, -1),
        turns=(Turn(1, 3),),
        reply="",
        stop=StopReason.MAX_NEW_TOKENS,
        verdict=Verdict.correct() if score else Verdict.incorrect("wrong"),
        reward=Reward(score, {"outcome": score}, {"outcome": 1.0}),
    )


def roll(
    differs: Callable[[int], bool], *, waves: int = 1, retry: int = 0, **fields: Any
) -> tuple[list[Wave], list[str]]:
    """Waves of two groups of two; the `n`-th task drawn has a signal where `differs(n)`."""
    plans: list[GroupPlan] = []
    drawn = iter(range(10_000))

    async def rolled(wanted: Sequence[GroupPlan], *, on_done: Any) -> list[Group]:
        plans.extend(wanted)
        return [
            Group(
                plan.group_id,
                plan.task,
                tuple(attempt(plan, s, float(differs(plan.task.index) and s == 0)) for s in range(2)),
            )
            for plan in wanted
        ]

    def draw() -> Task:
        number = next(drawn)
        limits = Limits(max_new_tokens=2)
        return Task("d", (Message(Role.USER, str(number)),), {}, Split.TRAIN, 0, number, 1, limits)

    parts: Any = SimpleNamespace(
        observer=SimpleNamespace(phase=lambda *a, **k: None, advance=lambda *a: None),
        rollouts=SimpleNamespace(roller=SimpleNamespace(roll=rolled)),
        config=SimpleNamespace(seed=7),
    )
    stage = RlStage(kind="rl", groups_per_step=2, group_size=2, **fields)
    rolling = Waves(stage, parts, SimpleNamespace(next=draw), retry)
    return [asyncio.run(rolling.roll(number)) for number in range(waves)], [plan.group_id for plan in plans]


def indices(groups: Sequence[Group]) -> list[int]:
    return [group.task.index for group in groups]


def test_without_refills_a_wave_is_what_was_drawn() -> None:
    (wave,), ids = roll(lambda n: False)
    assert indices(wave.groups) == [0, 1]
    assert wave.replaced == []
    assert ids == ["rl-00000-0000", "rl-00000-0001"]


def test_groups_without_signal_are_replaced_in_their_place_until_all_have_one() -> None:
    (wave,), ids = roll(lambda n: n in (1, 4), refill_rounds=5)
    assert indices(wave.groups) == [4, 1]
    assert indices(wave.replaced) == [0, 2, 3]
    assert len(set(ids)) == len(ids) == 5, "every group has an id, and so random numbers, of its own"
    assert wave.values() == {"replaced_groups": 3.0, "replaced_tokens": 0.0}


def test_after_the_last_round_what_is_silent_stays() -> None:
    (wave,), _ = roll(lambda n: False, refill_rounds=2)
    assert indices(wave.groups) == [4, 5]
    assert indices(wave.replaced) == [0, 1, 2, 3]


def test_a_stage_that_went_back_draws_under_other_names() -> None:
    _, ids = roll(lambda n: False, retry=2)
    assert ids == ["rl+2-00000-0000", "rl+2-00000-0001"]
