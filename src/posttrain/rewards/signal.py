"""Whether a group's attempts came out differently: what dynamic sampling goes by.

The signal is the outcome (law L9): the verdict's score and the environment's rewards for single turns. A penalty on
length and the KL's cost are no signal: a group that is solved throughout has nothing more to teach about its task
(DAPO: Yu et al., arXiv:2503.14476, eq. 11). It drops nothing.
"""

from __future__ import annotations

import math

from posttrain.core.types import Group, Trajectory


def has_signal(group: Group) -> bool:
    """Whether two scored attempts of the group differ in outcome; a group of one has no signal."""
    return len({_outcome(t) for t in group.trajectories if t.scored}) > 1


def _outcome(trajectory: Trajectory) -> float:
    assert trajectory.verdict is not None, f"trajectory {trajectory.trajectory_id} has no verdict"
    # The last turn's reward is the verdict's score once more (`rewards/token_rewards.py`).
    return math.fsum([trajectory.verdict.score, *(turn.reward for turn in trajectory.turns if not turn.done)])
