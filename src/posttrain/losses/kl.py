"""One-sample estimators of KL(policy ‖ reference), and terms whose gradient is that of this KL (law L5).

Estimators: Schulman, "Approximating KL Divergence" (2020). With x drawn from the policy and
d = log policy(x) − log reference(x): k1 = d, k2 = d²/2, k3 = exp(−d) − 1 + d. k1 and k3 have the KL as their mean.

Differentiating an estimate is not estimating the derivative (Tang & Munos, arXiv:2506.09477): through k1 the mean
gradient is zero, through k3 it is that of KL(reference ‖ policy). The mean of k under the policy changes also
because the policy draws other tokens, so k1 and k3 need the score-function part k · ∇log policy beside ∇k; for k2
the direct part alone, d · ∇log policy, already is the gradient wanted. Tokens drawn by another (behaviour) policy
are weighed by their importance ratio.

It treats each token's distribution given its prefix; how drawn tokens change later prefixes is not in the gradient.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

KLEstimator = Literal["k1", "k2", "k3"]


def kl_estimate(estimator: KLEstimator, policy_logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """`[N]` estimates of KL(policy ‖ reference) at tokens drawn from the policy."""
    difference = policy_logprobs - reference_logprobs
    match estimator:
        case "k1":
            return difference
        case "k2":
            return difference.square() / 2
        case "k3":
            return torch.expm1(-difference) + difference


def kl_term(
    estimator: KLEstimator, policy_logprobs: Tensor, reference_logprobs: Tensor, importance_weights: Tensor
) -> Tensor:
    """`[N]`: in value the weighted estimate, in gradient that of KL(policy ‖ reference).

    `importance_weights` are policy / behaviour at the drawn tokens; they are constants here. A capped weight makes
    the gradient biased in exchange for bounded variance.
    """
    weights = importance_weights.detach()
    estimate = kl_estimate(estimator, policy_logprobs, reference_logprobs)
    if estimator == "k2":
        return weights * estimate
    return weights * (estimate + estimate.detach() * (policy_logprobs - policy_logprobs.detach()))
