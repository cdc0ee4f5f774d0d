"""Builders that the tests of credit and its laws share: attempts of several turns, groups, what the models say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from posttrain.core.protocols import Advantage
from posttrain.core.registry import find, names
from posttrain.core.types import (
    Annotations,
    BoolArray,
    Boundary,
    Failure,
    FloatArray,
    Group,
    Limits,
    Reward,
    Split,
    StopReason,
    Task,
    Trajectory,
    Turn,
    Verdict,
)
from posttrain.rewards.compose import compose

PROMPT, REPLY = 2, 1
"""Tokens before the first turn, and of the environment between two turns."""

NOTHING = Annotations()

FAILURE = Failure(Boundary.SANDBOX, "the pool was closed")

ADVANTAGES = names("advantage")
FOUND = {name: find("advantage", name) for name in ADVANTAGES}
BY_GROUP = ["group_mean", "group_mean_std", "leave_one_out", "per_step"]


def component(name: str, **options: Any) -> Advantage:
    advantage: Advantage = FOUND[name](**options)
    return advantage


def task(index: int = 0, limits: Limits | None = None) -> Task:
    return Task("toy", (), {}, Split.TRAIN, 0, index, 1, limits or Limits(), content_key=str(index))


def attempt(
    reward: float | None,
    turns: Sequence[int] = (2,),
    *,
    name: str = "g/0",
    turn_rewards: Sequence[float] = (),
    at: Task | None = None,
    **fields: Any,
) -> Trajectory:
    """`turns` are numbers of sampled tokens, with a token of the environment's between two turns.

    `turn_rewards` belong to the turns before the last, whose own is the outcome once more, as single-turn domains say.
    """
    sampled, spans = [False] * PROMPT, []
    for place, length in enumerate(turns):
        if place:
            sampled += [False] * REPLY
        spans.append((len(sampled), len(sampled) + length))
        sampled += [True] * length
    rewards = [*turn_rewards, *[0.0] * (len(turns) - 1 - len(turn_rewards)), reward or 0.0]
    mask = np.asarray(sampled, np.bool_)
    group_id, _, sibling = name.partition("/")
    built = Trajectory(
        trajectory_id=name,
        task=at or task(),
        group_id=group_id,
        sibling=int(sibling),
        tokens=np.arange(len(mask), dtype=np.int32),
        sampled=mask,
        behavior_logprobs=np.where(mask, np.float32(-1.0), np.float32(0.0)),
        versions=np.where(mask, 0, -1).astype(np.int32),
        turns=tuple(
            Turn(start, end, earned, done=place == len(spans) - 1)
            for place, ((start, end), earned) in enumerate(zip(spans, rewards, strict=True))
        ),
        reply="",
        stop=StopReason.STOP,
        verdict=Verdict.correct(),
        reward=None if reward is None else compose({"outcome": reward}, {"outcome": 1.0}),
    )
    return replace(built, **fields)


def group(*attempts: Trajectory) -> Group:
    return Group(attempts[0].group_id, attempts[0].task, attempts)


def siblings(
    rewards: Sequence[float | None], turns: Sequence[Sequence[int]] = (), name: str = "g", index: int = 0
) -> Group:
    """Attempts without a verdict where the reward is None."""
    lengths = turns or [(2,)] * len(rewards)
    return Group(
        name,
        task(index),
        tuple(
            attempt(reward, lengths[place], name=f"{name}/{place}", at=task(index))
            for place, reward in enumerate(rewards)
        ),
    )


def credit(arrays: Sequence[FloatArray], group: Group) -> list[float]:
    """The one credit of each attempt; fails where its sampled tokens carry several."""
    found = []
    for array, trajectory in zip(arrays, group.trajectories, strict=True):
        values = set(array[trajectory.sampled].tolist())
        assert len(values) == 1, f"{trajectory.trajectory_id} carries {values}"
        found.append(values.pop())
    return found


def unsampled(mask: BoolArray, values: FloatArray, elsewhere: float = float("nan")) -> FloatArray:
    """`values` at sampled tokens and `elsewhere` at all others."""
    return np.where(mask, values, np.float32(elsewhere)).astype(np.float32)


def annotated(groups: Sequence[Group], *, seed: int = 0, kl: float = 0.0, elsewhere: float = 0.0) -> Annotations:
    """Random values and log-probs of every attempt at its sampled tokens, `elsewhere` at the others."""
    draw = np.random.default_rng(seed)
    attempts = [t for group in groups for t in group.trajectories]

    def random(low: float, high: float) -> dict[str, FloatArray]:
        rows = {t.trajectory_id: draw.uniform(low, high, len(t.tokens)).astype(np.float32) for t in attempts}
        return {t.trajectory_id: unsampled(t.sampled, rows[t.trajectory_id], elsewhere) for t in attempts}

    return Annotations(random(-1, 1), random(-3, 0), random(-3, 0), kl)


def drawn_attempt(draw: np.random.Generator, name: str, index: int) -> Trajectory:
    turns = draw.integers(1, 4, draw.integers(1, 4)).tolist()
    earned = draw.uniform(-100, 100, len(turns) - 1).tolist()
    return attempt(draw.uniform(-100, 100), turns, name=name, turn_rewards=earned, at=task(index))


def steps(*, min_size: int = 1, may_fail: bool = True) -> st.SearchStrategy[list[Group]]:
    """Groups of one step: ragged, of several turns, some attempts without a verdict; a step for each seed."""

    def step(seed: int) -> list[Group]:
        draw = np.random.default_rng(seed)
        groups = []
        for index in range(draw.integers(1, 4)):
            size = int(draw.integers(min_size, 5))
            members = [drawn_attempt(draw, f"g{index}/{sibling}", index) for sibling in range(size)]
            if may_fail:
                members = [replace(t, failure=FAILURE) if draw.random() < 0.25 else t for t in members]
            groups.append(Group(f"g{index}", task(index), tuple(members)))
        return groups

    return st.integers(0, 2**32 - 1).map(step)


def with_reward(trajectory: Trajectory, total: float) -> Trajectory:
    """The same attempt with another outcome, and nothing for single turns."""
    turns = tuple(replace(turn, reward=0.0) for turn in trajectory.turns)
    return replace(trajectory, reward=Reward(total, {"outcome": total}, {"outcome": 1.0}), turns=turns)
