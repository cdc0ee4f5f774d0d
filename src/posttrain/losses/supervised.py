"""Negative log-likelihood of the trainable tokens, for supervised fine-tuning.

Advantages, behaviour and reference are not read. It does not smooth labels.
"""

from __future__ import annotations

from dataclasses import dataclass

from posttrain.losses.base import LossInputs, Terms


@dataclass(frozen=True)
class Supervised:
    needs_reference = False
    needs_critic = False

    def __call__(self, inputs: LossInputs) -> Terms:
        return Terms({"negative_log_likelihood": -inputs.trainer_logprobs})
