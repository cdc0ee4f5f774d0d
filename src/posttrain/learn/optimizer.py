"""AdamW over one flat vector, each rank updating its shard (the state is held once, as in ZeRO stage 1).

Adam: Kingma & Ba, arXiv:1412.6980; decoupled weight decay: Loshchilov & Hutter, arXiv:1711.05101; sharding:
Rajbhandari et al., arXiv:1910.02054. Master weights and moments are float32 whatever the model computes in (float64
for a float64 model). Gradients are summed in rank order and clipped by their global norm. It knows no model, and a
gradient that is not finite changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from posttrain.learn.parameters import FlatParameters
from posttrain.learn.peers import Peers


@dataclass(frozen=True)
class OptimizerOptions:
    learning_rate: float = 1e-5
    """The highest of the schedule."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """After the warm-up; linear and cosine reach 0 with the stage's last step."""
    warmup_steps: int = 0
    """Steps over which the rate rises linearly; the first already learns."""
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    weight_decay: float = 0.0
    """Of matrices; norms and biases are never decayed."""
    max_grad_norm: float = 1.0
    """Longer gradients are scaled down to this norm; 0 leaves them alone."""

    def __post_init__(self) -> None:
        for name in ("learning_rate", "warmup_steps", "eps", "weight_decay", "max_grad_norm"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be a finite number of at least 0, not {getattr(self, name)}")
        if not all(0.0 <= beta < 1.0 for beta in self.betas):
            raise ValueError(f"betas must lie in [0, 1), not {self.betas}")

    def learning_rate_at(self, step: int, total_steps: int) -> float:
        """`step` counts from 0."""
        if step < self.warmup_steps:
            return self.learning_rate * (step + 1) / self.warmup_steps
        progress = (step - self.warmup_steps) / max(1, total_steps - self.warmup_steps)
        match self.schedule:
            case "constant":
                return self.learning_rate
            case "linear":
                return self.learning_rate * max(0.0, 1.0 - progress)
            case "cosine":
                return self.learning_rate * (1.0 + math.cos(math.pi * min(1.0, progress))) / 2


@dataclass(frozen=True)
class OptimizerState:
    """Flat vectors [P], seen by all ranks."""

    master: Tensor
    first_moment: Tensor
    second_moment: Tensor


class ShardedAdamW:
    """One stage's optimizer; its vectors are the learner's, this rank changes its own shard of them."""

    def __init__(
        self, options: OptimizerOptions, parameters: FlatParameters, state: OptimizerState, peers: Peers
    ) -> None:
        self._max_grad_norm = options.max_grad_norm
        self._peers = peers
        self._state = state
        self._shard = shard = parameters.shard(peers.rank, peers.world_size)
        border = min(max(parameters.num_decayed, shard.start), shard.stop)
        spans = [slice(shard.start, border), slice(border, shard.stop)]
        self._pieces = [(span, torch.nn.Parameter(state.master[span], requires_grad=False)) for span in spans]
        decays = [options.weight_decay, 0.0]
        self._adamw = torch.optim.AdamW(
            [
                {"params": [piece], "weight_decay": decay}
                for (_, piece), decay in zip(self._pieces, decays, strict=True)
            ],
            betas=options.betas,
            eps=options.eps,
            fused=True,
        )
        for span, piece in self._pieces:
            self._adamw.state[piece] = {
                "step": torch.zeros((), dtype=torch.float32),
                "exp_avg": state.first_moment[span],
                "exp_avg_sq": state.second_moment[span],
            }

    @property
    def num_updates(self) -> int:
        """What Adam's bias correction counts; set when a stage is resumed."""
        return int(self._adamw.state[self._pieces[0][1]]["step"].item())

    @num_updates.setter
    def num_updates(self, value: int) -> None:
        for _, piece in self._pieces:
            self._adamw.state[piece]["step"].fill_(value)

    def forget(self) -> None:
        """Moments and count of updates back to zero, in this rank's shard."""
        self._state.first_moment[self._shard].zero_()
        self._state.second_moment[self._shard].zero_()
        self.num_updates = 0

    def update(self, gradients: Sequence[Tensor], weights: Tensor, learning_rate: float) -> float:
        """One update from each rank's `[P]` gradient; returns the global norm before clipping.

        Changes master weights, moments and `weights`, unless the norm is not finite: then nothing. The gradients are
        used up. Every rank returns once all shards of `weights` are new.
        """
        total = gradients[0][self._shard]
        for gradient in gradients[1:]:
            total += gradient[self._shard]
        norm = math.sqrt(math.fsum(self._peers.gather("sum the gradient's norm", _square_sum(total))))
        if not math.isfinite(norm):
            return norm
        if 0.0 < self._max_grad_norm < norm:
            total *= self._max_grad_norm / norm
        for group, (span, piece) in zip(self._adamw.param_groups, self._pieces, strict=True):
            group["lr"] = learning_rate
            piece.grad = total[span.start - self._shard.start : span.stop - self._shard.start]
        self._adamw.step()
        for span, piece in self._pieces:
            piece.grad = None
            weights[span] = piece.detach()
        self._peers.gather("update the weights")
        return norm


def _square_sum(values: Tensor) -> float:
    """In pieces that are added in float64: a float32 sum over 10⁸ squares would lose digits."""
    return math.fsum(float(torch.dot(piece, piece)) for piece in torch.split(values, 1 << 16))
