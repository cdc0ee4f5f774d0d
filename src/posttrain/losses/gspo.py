"""GSPO: PPO's clipped surrogate with one importance ratio for the whole sequence.

Zheng et al., "Group Sequence Policy Optimization", arXiv:2507.18071. Eq. 7: s = (π(y) / behaviour(y))^(1/|y|), the
geometric mean of the ratios of a sample's loss tokens. Eq. 5: −min(s A, clip(s, 1 − low, 1 + high) A), given to each
token, so that weights of 1/|y| (the reduction "sequence mean") make it the paper's objective. Without the exponent
1/|y| the ratio is that of the sequence as one action, as in RLOO (Ahmadian et al., arXiv:2402.14740), and its value is
shared out among the tokens, so that equal weights ("fixed length") make it the objective.

The gradient is written token by token as in GSPO-token (eq. 13 and 14): a token that is not clipped has −s A ∇ log π
of its own. Where a sample's tokens share one advantage and one weight, that sums up to the derivative through s, and
value, clipping and gradient are those of eq. 5; where they do not, each token's own advantage reaches that token,
which eq. 5 cannot say. A trajectory that was split into samples has a ratio for each.

On fresh on-policy data s is 1 and the gradient is the plain policy gradient (law L6). It has no reduction of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from posttrain.losses.base import LossInputs, Terms
from posttrain.losses.ratio import MAX_LOG_RATIO, log_ratio, ratio_maxima, ratio_metrics


@dataclass(frozen=True)
class GSPO:
    clip_low: float = 3e-4
    """A token with a negative advantage stops pushing once its sequence's ratio is below 1 − clip_low."""
    clip_high: float = 4e-4
    """A token with a positive advantage stops pushing once its sequence's ratio is above 1 + clip_high."""
    length_normalized: bool = True
    """Whether the ratio is the geometric mean of the tokens' ratios, or their product. The product moves |y| times as
    far, so it needs wider bounds."""

    needs_reference = False
    needs_critic = False

    def __post_init__(self) -> None:
        if not 0.0 < self.clip_low <= 1.0:
            raise ValueError(f"clip_low must lie in (0, 1], not {self.clip_low}")
        if not self.clip_high > 0.0:
            raise ValueError(f"clip_high must be above 0, not {self.clip_high}")

    def __call__(self, inputs: LossInputs) -> Terms:
        logprobs, advantages = inputs.trainer_logprobs, inputs.advantages
        log_ratios = log_ratio(inputs)
        sums, lengths = _by_segment(log_ratios, inputs.segments, inputs.num_segments)
        exponents = sums / lengths if self.length_normalized else sums.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
        ratio = exponents.exp()[inputs.segments]
        bounded = ratio.clamp(1.0 - self.clip_low, 1.0 + self.clip_high)
        clipped = ratio * advantages > bounded * advantages
        share = 1.0 if self.length_normalized else 1.0 / lengths[inputs.segments]
        surrogate = ratio * (share + logprobs - logprobs.detach())
        term = -torch.where(clipped, bounded * share, surrogate) * advantages
        metrics = {**ratio_metrics(log_ratios), "sequence_ratio": ratio, "clipped_share": clipped.to(ratio.dtype)}
        return Terms({"policy_loss": term}, metrics, ratio_maxima(log_ratios))


def _by_segment(values: Tensor, segments: Tensor, num_segments: int) -> tuple[Tensor, Tensor]:
    """`[num_segments]` sums, and lengths that are at least 1."""
    sums = values.new_zeros(num_segments).index_add(0, segments, values)
    lengths = torch.bincount(segments, minlength=num_segments).clamp(min=1)
    return sums, lengths.to(values.dtype)
