"""A penalty on KL(policy ‖ reference) as a term of the loss; estimators and their gradients are in `losses/kl.py`.

Tokens drawn by another policy are weighed by their capped importance ratio. What the coefficient is at a step, where
it follows a target, is the loop's affair.
"""

from __future__ import annotations

from dataclasses import dataclass

from posttrain.losses.base import LossInputs, Terms
from posttrain.losses.kl import KLEstimator, kl_estimate, kl_term
from posttrain.losses.ratio import log_ratio


@dataclass(frozen=True)
class KLPenalty:
    coefficient: float = 0.01
    estimator: KLEstimator = "k3"
    max_importance_weight: float = 2.0
    """Cap of the ratio as a weight, at least 1."""

    needs_reference = True
    needs_critic = False

    def __post_init__(self) -> None:
        if not self.coefficient >= 0.0:
            raise ValueError(f"coefficient must be at least 0, not {self.coefficient}")
        if not self.max_importance_weight >= 1.0:
            raise ValueError(f"max_importance_weight must be at least 1, not {self.max_importance_weight}")

    def __call__(self, inputs: LossInputs) -> Terms:
        assert inputs.reference_logprobs is not None, "a KL penalty needs reference log-probs"
        logprobs, reference = inputs.trainer_logprobs, inputs.reference_logprobs
        weights = log_ratio(inputs).exp().clamp(max=self.max_importance_weight)
        term = self.coefficient * kl_term(self.estimator, logprobs, reference, weights)
        return Terms({"kl_loss": term}, {"kl": kl_estimate(self.estimator, logprobs.detach(), reference)})
