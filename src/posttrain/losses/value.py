"""The critic's squared error, clipped as in PPO2.

Half of max((V − R)², (clip(V, V_old − ε, V_old + ε) − R)²), R the return to predict (Schulman et al.,
arXiv:1707.06347, eq. 9, with the clip of OpenAI's baselines, ppo2/model.py): a value that has moved further than ε
from where it stood before the step's first update, and closer to the return, is pushed no more. V_old and R are
constants. It reads neither log-probs nor advantages; explained variance is no mean over tokens and is not reported.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from posttrain.losses.base import LossInputs, Terms


@dataclass(frozen=True)
class Value:
    coefficient: float = 0.5
    """Beside the policy term."""
    clip: float = 0.2
    """How far a value may move in one step, in units of the return; 0: any distance."""

    needs_reference = False
    needs_critic = True

    def __post_init__(self) -> None:
        if not self.coefficient >= 0.0:
            raise ValueError(f"coefficient must be at least 0, not {self.coefficient}")
        if not self.clip >= 0.0:
            raise ValueError(f"clip must be at least 0, not {self.clip}")

    def __call__(self, inputs: LossInputs) -> Terms:
        """The metric `value_error` is the squared error (V − R)², not clipped."""
        values, old, returns = inputs.values, inputs.old_values, inputs.returns
        assert values is not None, "a value loss needs the critic's values"
        assert old is not None, "a value loss needs the values from before the update"
        assert returns is not None, "a value loss needs returns"
        errors = (values - returns).square()
        metrics = {"value_error": errors.detach()}
        if self.clip:
            near = torch.clamp(values.detach(), old - self.clip, old + self.clip)
            clipped_errors = (near - returns).square()
            clipped = clipped_errors > errors.detach()
            errors = torch.where(clipped, clipped_errors, errors)
            metrics["value_clipped_share"] = clipped.to(errors.dtype)
        return Terms({"value_loss": self.coefficient * 0.5 * errors}, metrics)
