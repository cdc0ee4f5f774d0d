"""The loss seam: flat tensors over loss tokens in, named per-token terms out.

Only trainable tokens enter, so a loss cannot read a masked value (law L3) and needs no mask. It does not reduce:
the trainer weighs each token, sums, and divides once by the step's global weight (law L2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from torch import Tensor


@dataclass(frozen=True)
class LossInputs:
    """The loss tokens of one micro-batch, all in one floating dtype.

    `trainer_logprobs`, `entropy` and `values` carry gradients; everything else is constant. All of a sample's loss
    tokens are here, in their order.
    """

    trainer_logprobs: Tensor  # [N], of the current policy at the temperature that was sampled with
    behavior_logprobs: Tensor  # [N], of the policy that sampled
    advantages: Tensor  # [N]
    segments: Tensor  # [N] int64, which of the micro-batch's samples a token belongs to
    num_segments: int
    reference_logprobs: Tensor | None = None  # [N], of the kept reference
    entropy: Tensor | None = None  # [N], of the current policy, in nats
    values: Tensor | None = None  # [N], the critic's expected return before the token
    old_values: Tensor | None = None  # [N], the same before the step's first update
    returns: Tensor | None = None  # [N], what the critic is to predict

    def __post_init__(self) -> None:
        fields = [self.behavior_logprobs, self.advantages, self.segments, self.reference_logprobs, self.entropy]
        for tensor in [*fields, self.values, self.old_values, self.returns]:
            assert tensor is None or tensor.shape == self.trainer_logprobs.shape, "loss inputs differ in length"


@dataclass(frozen=True)
class Terms:
    """What a loss says of each token. A micro-batch's objective is the weighted sum of all `terms`."""

    terms: Mapping[str, Tensor]  # name → [N], with gradient
    metrics: Mapping[str, Tensor] = field(default_factory=dict)
    """Name → [N], detached: the step's mean over loss tokens is reported."""
    maxima: Mapping[str, Tensor] = field(default_factory=dict)
    """Name → [N], detached: the step's maximum is reported."""


@runtime_checkable
class Loss(Protocol):
    """A pure function: no state, no random draws, no reduction over tokens of different segments.

    One idea each; a stage adds up the terms of several (policy, KL, entropy, value).
    """

    @property
    def needs_reference(self) -> bool:
        """Whether `reference_logprobs` must be given."""
        ...

    @property
    def needs_critic(self) -> bool:
        """Whether `values`, `old_values` and `returns` must be given."""
        ...

    def __call__(self, inputs: LossInputs) -> Terms: ...
