"""The importance ratio policy / behaviour of each token, and what every policy loss reports of it.

It clips and weighs nothing: each loss does that its own way.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from posttrain.losses.base import LossInputs

MAX_LOG_RATIO = 20.0
"""Where exp() is cut: far above any cap, far below overflow."""


def log_ratio(inputs: LossInputs) -> Tensor:
    """`[N]`, without gradient: log policy − log behaviour, cut at ±`MAX_LOG_RATIO`."""
    difference = inputs.trainer_logprobs.detach() - inputs.behavior_logprobs
    return difference.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def ratio_metrics(log_ratios: Tensor) -> dict[str, Tensor]:
    """`mismatch_kl` estimates KL(behaviour ‖ policy): for tokens drawn by the behaviour, E[ratio − 1 − log ratio]."""
    ratios = log_ratios.exp()
    return {
        "importance_ratio": ratios,
        "mismatch": log_ratios.abs(),
        "mismatch_kl": torch.expm1(log_ratios) - log_ratios,
    }


def ratio_maxima(log_ratios: Tensor) -> Mapping[str, Tensor]:
    return {"mismatch_max": log_ratios.abs()}
