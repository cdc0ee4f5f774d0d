"""KL to the reference as a part of the reward: each sampled token costs coefficient × k1.

k1 = log policy(token) − log reference(token), as in Ziegler et al., arXiv:1909.08593, eq. 2. Only k1 is offered here.
A reward is weighed by ∇ log policy and by nothing else, and the mean of k1 · ∇ log policy is the gradient of
KL(policy ‖ reference). With k3 it would be that minus the gradient of KL(reference ‖ policy), with k2 that of no
divergence at all. In the loss, where the estimate is differentiated too, all three are offered (`losses/kl.py`).

The reward that a verdict earned stays as it is logged: this cost is added to it where advantages are computed.
"""

from __future__ import annotations

import numpy as np

from posttrain.core.errors import NonFiniteError
from posttrain.core.types import Annotations, Trajectory
from posttrain.rewards.statistics import Values


def kl_rewards(trajectory: Trajectory, annotations: Annotations) -> Values:
    """`[n]`, one for each sampled token in order: −`annotations.kl_in_reward` · k1.

    The policy is the trainer's where `annotations.policy_logprobs` has the attempt, and else the one that sampled,
    which is the same one on fresh data (law L6). Raises `NonFiniteError`.
    """
    sampled = trajectory.sampled
    if annotations.kl_in_reward == 0.0:
        return np.zeros(int(sampled.sum()), np.float64)
    name = trajectory.trajectory_id
    assert name in annotations.reference_logprobs, f"KL in the reward, and no reference log-probs of trajectory {name}"
    policy = annotations.policy_logprobs.get(name, trajectory.behavior_logprobs)
    k1 = policy[sampled].astype(np.float64) - annotations.reference_logprobs[name][sampled]
    if not np.isfinite(k1).all():
        raise NonFiniteError(f"the KL of trajectory {name} to the reference is not finite")
    return np.asarray(-annotations.kl_in_reward * k1, np.float64)
