"""Clipped policy gradient with separate bounds, a capped importance weight and an optional KL to the reference.

Objective of PPO (Schulman et al., arXiv:1707.06347, eq. 7) per token, with the ratio taken to the policy that
sampled; separate lower and upper bounds as in DAPO (Yu et al., arXiv:2503.14476, eq. 10); the weight of an
unclipped token is capped and kept constant, as in V-trace (Espeholt et al., arXiv:1802.01561, eq. 1), so that no
token counts more than `max_importance_weight` times. KL as in `losses/kl.py`.

On fresh on-policy data every ratio is 1 and the gradient is the plain policy gradient (law L6). It computes no
advantages and no reduction over tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from posttrain.losses.base import LossInputs, Terms
from posttrain.losses.kl import KLEstimator, kl_estimate, kl_term

MAX_LOG_RATIO = 20.0
"""Where exp() is cut: far above any cap, far below overflow."""


@dataclass(frozen=True)
class ClippedPolicyGradient:
    clip_low: float = 0.2
    """A token with a negative advantage stops pushing once its ratio is below 1 − clip_low."""
    clip_high: float = 0.28
    """A token with a positive advantage stops pushing once its ratio is above 1 + clip_high."""
    max_importance_weight: float = 2.0
    """Cap of the ratio as a weight, at least 1."""
    kl_coefficient: float = 0.0
    """Weight of KL(policy ‖ reference); at 0 no reference is needed."""
    kl_estimator: KLEstimator = "k3"

    def __post_init__(self) -> None:
        if not 0.0 < self.clip_low <= 1.0:
            raise ValueError(f"clip_low must lie in (0, 1], not {self.clip_low}")
        if not self.clip_high > 0.0:
            raise ValueError(f"clip_high must be above 0, not {self.clip_high}")
        if not self.max_importance_weight >= 1.0:
            raise ValueError(f"max_importance_weight must be at least 1, not {self.max_importance_weight}")
        if not self.kl_coefficient >= 0.0:
            raise ValueError(f"kl_coefficient must be at least 0, not {self.kl_coefficient}")

    @property
    def needs_reference(self) -> bool:
        return self.kl_coefficient > 0.0

    def __call__(self, inputs: LossInputs) -> Terms:
        logprobs = inputs.trainer_logprobs
        log_ratio = (logprobs.detach() - inputs.behavior_logprobs).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
        ratio = log_ratio.exp()
        weights = ratio.clamp(max=self.max_importance_weight)
        policy, clipped = self._policy_term(logprobs, inputs.advantages, ratio, weights)
        terms = {"policy_loss": policy}
        metrics = {
            "importance_ratio": ratio,
            "clipped_share": clipped.to(ratio.dtype),
            "capped_share": (ratio > self.max_importance_weight).to(ratio.dtype),
            "mismatch": log_ratio.abs(),
            "mismatch_kl": torch.expm1(log_ratio) - log_ratio,
        }
        if inputs.entropy is not None:
            metrics["entropy"] = inputs.entropy
        if inputs.reference_logprobs is not None:
            metrics["kl"] = kl_estimate(self.kl_estimator, logprobs.detach(), inputs.reference_logprobs)
        if self.needs_reference:
            assert inputs.reference_logprobs is not None, "this loss needs reference log-probs"
            term = kl_term(self.kl_estimator, logprobs, inputs.reference_logprobs, weights)
            terms["kl_loss"] = self.kl_coefficient * term
        return Terms(terms, metrics, maxima={"mismatch_max": log_ratio.abs()})

    def _policy_term(
        self, logprobs: Tensor, advantages: Tensor, ratio: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        """`(term, clipped)`; the gradient of a clipped token is 0, of another −weight · advantage · ∇logprob."""
        bounded = ratio.clamp(1.0 - self.clip_low, 1.0 + self.clip_high)
        clipped = ratio * advantages > bounded * advantages
        surrogate = weights * (1.0 + logprobs - logprobs.detach())
        return -torch.where(clipped, bounded, surrogate) * advantages, clipped
