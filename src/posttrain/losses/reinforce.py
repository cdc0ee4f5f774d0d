"""REINFORCE per token with truncated importance weights, and tokens left out whose ratio is out of bounds.

Williams (1992): −A log π, weighed by min(r, cap) as a constant, r the ratio to the policy that sampled: the ρ of
V-trace (Espeholt et al., arXiv:1802.01561, eq. 1), also known as truncated importance sampling. Leaving out tokens
beyond a bound, instead of capping them, is IcePop's mask (arXiv:2510.18855); they still count in the step's
denominator.

Without cap and masks the mean over tokens drawn by any behaviour policy is −E[A ∇ log π] over tokens drawn by the
policy, at the prefixes that were sampled: what came before a token and what comes after it stay the behaviour's. The
value is that of the formula and says little; the gradient is what counts. It clips nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from posttrain.losses.base import LossInputs, Terms
from posttrain.losses.ratio import log_ratio, ratio_maxima, ratio_metrics


@dataclass(frozen=True)
class Reinforce:
    max_importance_weight: float = 2.0
    """Cap of the ratio as a weight, at least 1; 0: no cap."""
    mask_low: float = 0.0
    """Tokens with a ratio below this, which is below 1, are left out; 0: none."""
    mask_high: float = 0.0
    """Tokens with a ratio above this, which is above 1, are left out; 0: none."""

    needs_reference = False
    needs_critic = False

    def __post_init__(self) -> None:
        if self.max_importance_weight != 0.0 and not self.max_importance_weight >= 1.0:
            raise ValueError(f"max_importance_weight must be at least 1, or 0, not {self.max_importance_weight}")
        if not 0.0 <= self.mask_low < 1.0:
            raise ValueError(f"mask_low must lie in [0, 1), not {self.mask_low}")
        if self.mask_high != 0.0 and not self.mask_high > 1.0:
            raise ValueError(f"mask_high must be above 1, or 0 for none, not {self.mask_high}")

    def __call__(self, inputs: LossInputs) -> Terms:
        log_ratios = log_ratio(inputs)
        ratio = log_ratios.exp()
        weights = ratio.clamp(max=self.max_importance_weight) if self.max_importance_weight else ratio
        outside = ratio < self.mask_low  # a NaN is not outside: it must not be left out unseen
        if self.mask_high:
            outside |= ratio > self.mask_high
        term = -weights * inputs.advantages * inputs.trainer_logprobs
        metrics = {**ratio_metrics(log_ratios), "masked_share": outside.to(ratio.dtype)}
        if self.max_importance_weight:
            metrics["capped_share"] = (ratio > self.max_importance_weight).to(ratio.dtype)
        return Terms({"policy_loss": term.masked_fill(outside, 0.0)}, metrics, ratio_maxima(log_ratios))
