"""The soft penalty on attempts that come near their length limit, as a visible part of the reward.

DAPO (Yu et al., arXiv:2503.14476, eq. 13): over the last `buffer` tokens before the limit the penalty grows linearly
from 0 to 1, and an attempt that was cut off has all of it. What is counted are the tokens sampled in the longest turn,
since the limit is one turn's. The penalised reward replaces the other, so what is logged is what is trained; it can be
negative.

It decides nothing about which attempts are trained.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from posttrain.core.errors import ConfigError
from posttrain.core.types import Group, Trajectory
from posttrain.rewards.compose import compose

PART = "overlong"
"""Name of the reward's part, between −1 and 0."""

WEIGHT = 0.5
"""Of the part. In DAPO the outcome is −1 or 1 and the weight 1; here it is 0 or 1."""

BUFFER_SHARE = 0.2
"""Of the limit, where no buffer is stated: DAPO's 4,096 of 20,480 tokens (section 4.1)."""


def penalise_overlong(groups: Sequence[Group], buffer_tokens: int = 0) -> list[Group]:
    """The groups with every scored attempt's reward penalised. `buffer_tokens` 0: `BUFFER_SHARE` of each limit.

    Raises `ConfigError` where the buffer is not shorter than a task's limit: every reply would be too long.
    """
    return [
        dataclasses.replace(group, trajectories=tuple(_penalised(t, buffer_tokens) for t in group.trajectories))
        for group in groups
    ]


def overlong(trajectory: Trajectory, buffer_tokens: int) -> float:
    """Between −1 and 0. Raises `ConfigError` as `penalise_overlong` does."""
    limit = trajectory.task.limits.max_new_tokens
    if buffer_tokens >= limit:
        raise ConfigError(
            f"overlong_buffer_tokens is {buffer_tokens} and the limit in domain {trajectory.task.domain} is {limit}: "
            "every reply would be too long"
        )
    if trajectory.stop.truncated:
        return -1.0
    buffer = buffer_tokens or BUFFER_SHARE * limit
    longest = max((turn.end - turn.start for turn in trajectory.turns), default=0)
    return -min(1.0, max(0.0, (longest - (limit - buffer)) / buffer))


def _penalised(trajectory: Trajectory, buffer_tokens: int) -> Trajectory:
    reward = trajectory.reward
    if not trajectory.scored or reward is None:
        return trajectory
    penalised = compose(
        {**reward.parts, PART: overlong(trajectory, buffer_tokens)},
        {**reward.weights, PART: WEIGHT},
        reward.gates,
        withheld=reward.withheld,
        null_levels=reward.null_levels,
    )
    return dataclasses.replace(trajectory, reward=penalised)
