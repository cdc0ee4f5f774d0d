"""PPO's clipped surrogate per token, with separate bounds, dual clip and a capped importance weight.

Schulman et al., arXiv:1707.06347, eq. 7: −min(r A, clip(r, 1 − low, 1 + high) A), r the ratio to the policy that
sampled; separate bounds as in DAPO (Yu et al., arXiv:2503.14476, eq. 10); dual clip as in Ye et al.,
arXiv:1912.09729, eq. 5: with A < 0 the objective is never below c A. The weight of a token that is not clipped may be
capped and kept constant, as in V-trace (Espeholt et al., arXiv:1802.01561, eq. 1): it then still pushes, but never
more than so many times.

On fresh on-policy data every ratio is 1 and the gradient is the plain policy gradient (law L6). It computes no
advantages, no KL and no reduction over tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from posttrain.losses.base import LossInputs, Terms
from posttrain.losses.ratio import log_ratio, ratio_maxima, ratio_metrics


@dataclass(frozen=True)
class ClippedPolicyGradient:
    clip_low: float = 0.2
    """A token with a negative advantage stops pushing once its ratio is below 1 − clip_low."""
    clip_high: float = 0.28
    """A token with a positive advantage stops pushing once its ratio is above 1 + clip_high."""
    dual_clip: float = 0.0
    """A token with a negative advantage stops pushing once its ratio is above this, which is above 1; 0: never."""
    max_importance_weight: float = 2.0
    """Cap of the ratio as a weight, at least 1; 0: no cap."""

    needs_reference = False
    needs_critic = False

    def __post_init__(self) -> None:
        if not 0.0 < self.clip_low <= 1.0:
            raise ValueError(f"clip_low must lie in (0, 1], not {self.clip_low}")
        if not self.clip_high > 0.0:
            raise ValueError(f"clip_high must be above 0, not {self.clip_high}")
        if self.dual_clip != 0.0 and not self.dual_clip > 1.0:
            raise ValueError(f"dual_clip must be above 1, or 0 for none, not {self.dual_clip}")
        if self.max_importance_weight != 0.0 and not self.max_importance_weight >= 1.0:
            raise ValueError(f"max_importance_weight must be at least 1, or 0, not {self.max_importance_weight}")

    def __call__(self, inputs: LossInputs) -> Terms:
        logprobs, advantages = inputs.trainer_logprobs, inputs.advantages
        log_ratios = log_ratio(inputs)
        ratio = log_ratios.exp()
        weights = ratio.clamp(max=self.max_importance_weight) if self.max_importance_weight else ratio
        bounded = ratio.clamp(1.0 - self.clip_low, 1.0 + self.clip_high)
        clipped = ratio * advantages > bounded * advantages
        if self.dual_clip:
            too_far = (advantages < 0.0) & (ratio > self.dual_clip)
            bounded = torch.where(too_far, torch.full_like(ratio, self.dual_clip), bounded)
            clipped |= too_far
        # In value the weight times the advantage, in gradient that times ∇ log policy.
        surrogate = weights * (1.0 + logprobs - logprobs.detach())
        metrics = {**ratio_metrics(log_ratios), "clipped_share": clipped.to(ratio.dtype)}
        if self.max_importance_weight:
            metrics["capped_share"] = (ratio > self.max_importance_weight).to(ratio.dtype)
        term = -torch.where(clipped, bounded, surrogate) * advantages
        return Terms({"policy_loss": term}, metrics, ratio_maxima(log_ratios))
