"""A bonus on the entropy of the policy at each loss token: −coefficient · H(π(· | prefix)).

Williams & Peng (1991); as in A3C (Mnih et al., arXiv:1602.01783, section 4). The entropy is that of the distribution
sampled from, temperature included, over the whole vocabulary, and its gradient is exact at the prefixes that were
sampled: no importance weight is needed, and how drawn tokens change later prefixes is not in it. What the coefficient
is at a step, where it follows a target, is the loop's affair.
"""

from __future__ import annotations

from dataclasses import dataclass

from posttrain.losses.base import LossInputs, Terms


@dataclass(frozen=True)
class EntropyBonus:
    coefficient: float = 1e-3
    """In units of the policy term per nat; 0: none."""

    needs_reference = False
    needs_critic = False

    def __post_init__(self) -> None:
        if not self.coefficient >= 0.0:
            raise ValueError(f"coefficient must be at least 0, not {self.coefficient}")

    def __call__(self, inputs: LossInputs) -> Terms:
        assert inputs.entropy is not None, "an entropy bonus needs the entropy"
        return Terms({"entropy_loss": -self.coefficient * inputs.entropy})
