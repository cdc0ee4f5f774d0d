"""What each sampled token of an attempt earned, and the way back from sampled tokens to all tokens.

Three things are earned: the attempt's reward, on its last sampled token; the environment's reward for each turn that
went on, on that turn's last token; the KL's cost, on every token (`rewards/kl_in_reward.py`). The environment's reward
for the turn that ended the attempt (`Turn.done`) is the outcome once more and is not added. Every advantage starts
from here, so all of them pursue the same sum.

Only sampled tokens are looked at: what stands elsewhere is never read (law L3). It compares no attempts.
"""

from __future__ import annotations

import math

import numpy as np

from posttrain.core.errors import NonFiniteError
from posttrain.core.types import Annotations, FloatArray, Trajectory
from posttrain.rewards.kl_in_reward import kl_rewards
from posttrain.rewards.statistics import Values


def token_rewards(trajectory: Trajectory, annotations: Annotations) -> Values:
    """`[n]`, one for each sampled token in order, of a scored attempt; they sum to `total_reward`.

    Raises `NonFiniteError`.
    """
    rewards = kl_rewards(trajectory, annotations)
    positions = np.flatnonzero(trajectory.sampled)
    if len(positions):
        for end, reward in _earned(trajectory):
            rewards[max(0, int(np.searchsorted(positions, end)) - 1)] += reward
    return rewards


def total_reward(trajectory: Trajectory, annotations: Annotations) -> float:
    """All that a scored attempt earned, even where it sampled no token. Raises `NonFiniteError`."""
    return math.fsum([*(reward for _, reward in _earned(trajectory)), *kl_rewards(trajectory, annotations)])


def returns_to_go(trajectory: Trajectory, annotations: Annotations) -> Values:
    """`[n]`: what was earned from each sampled token on, undiscounted."""
    return np.asarray(np.cumsum(token_rewards(trajectory, annotations)[::-1])[::-1], np.float64)


def on_tokens(trajectory: Trajectory, values: Values | float) -> FloatArray:
    """`[T]` from one value for each sampled token, or one for all of them; 0 elsewhere."""
    result = np.zeros(len(trajectory.tokens), np.float32)
    result[trajectory.sampled] = values
    return result


def _earned(trajectory: Trajectory) -> list[tuple[int, float]]:
    """`(end, reward)`: earned by the last token sampled before `end`."""
    assert trajectory.reward is not None, f"trajectory {trajectory.trajectory_id} was not scored"
    earned = [(turn.end, turn.reward) for turn in trajectory.turns if not turn.done]
    earned.append((len(trajectory.tokens), trajectory.reward.total))
    for _, reward in earned:
        if not math.isfinite(reward):
            raise NonFiniteError(f"the reward of trajectory {trajectory.trajectory_id} is {reward}")
    return earned
