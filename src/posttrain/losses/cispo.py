"""CISPO: the importance weight is clipped, not the update, so that every token goes on pushing.

MiniMax, "MiniMax-M1", arXiv:2506.13585, eq. 4 and 5: −sg(clip(r, 1 − low, 1 + high)) A log π, r the ratio to the
policy that sampled, sg a constant. The paper uses no lower bound; without one this is REINFORCE with truncated weights
(`losses/reinforce.py`). The upper one is ScaleRL's (arXiv:2510.13786): no weight above 5.

On fresh on-policy data every weight is 1 and the gradient is the plain policy gradient (law L6). It stops no token.
"""

from __future__ import annotations

from dataclasses import dataclass

from posttrain.losses.base import LossInputs, Terms
from posttrain.losses.ratio import log_ratio, ratio_maxima, ratio_metrics


@dataclass(frozen=True)
class CISPO:
    clip_low: float = 1.0
    """No weight is below 1 − clip_low; at 1 there is no lower bound."""
    clip_high: float = 4.0
    """No weight is above 1 + clip_high."""

    needs_reference = False
    needs_critic = False

    def __post_init__(self) -> None:
        if not 0.0 < self.clip_low <= 1.0:
            raise ValueError(f"clip_low must lie in (0, 1], not {self.clip_low}")
        if not self.clip_high > 0.0:
            raise ValueError(f"clip_high must be above 0, not {self.clip_high}")

    def __call__(self, inputs: LossInputs) -> Terms:
        log_ratios = log_ratio(inputs)
        ratio = log_ratios.exp()
        weights = ratio.clamp(1.0 - self.clip_low, 1.0 + self.clip_high)
        term = -weights * inputs.advantages * inputs.trainer_logprobs
        clipped_share = (weights != ratio).to(ratio.dtype)
        metrics = {**ratio_metrics(log_ratios), "clipped_share": clipped_share}
        return Terms({"policy_loss": term}, metrics, ratio_maxima(log_ratios))
