"""A toy language of two-token sequences, small enough to sum over all of them instead of sampling."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from posttrain.losses.base import LossInputs

VOCABULARY = 3
NUM_SEQUENCES = VOCABULARY**2


@dataclass(frozen=True)
class TwoSteps:
    """A policy over two tokens: logits [V] of the first, [V, V] of the second given the first."""

    first: Tensor
    second: Tensor

    @classmethod
    def random(cls, seed: int) -> TwoSteps:
        draw = torch.Generator().manual_seed(seed)
        shapes = ((VOCABULARY,), (VOCABULARY, VOCABULARY))
        first, second = (torch.randn(shape, generator=draw, dtype=torch.float64).requires_grad_() for shape in shapes)
        return cls(first, second)

    def logprobs(self) -> Tensor:
        """`[V², 2]`: of each token of each sequence, given its prefix."""
        first = torch.log_softmax(self.first, dim=-1).repeat_interleave(VOCABULARY)
        return torch.stack([first, torch.log_softmax(self.second, dim=-1).reshape(-1)], dim=1)

    def gradient(self, value: Tensor) -> Tensor:
        """`[V + V²]` by all logits."""
        parts = torch.autograd.grad(value, [self.first, self.second], allow_unused=True, materialize_grads=True)
        return torch.cat([part.reshape(-1) for part in parts])


REWARDS = torch.randn(NUM_SEQUENCES, generator=torch.Generator().manual_seed(99), dtype=torch.float64)


def every_sequence(policy: TwoSteps, behavior: TwoSteps, advantages: Tensor) -> LossInputs:
    """All sequences as samples of one micro-batch; `advantages` are [V²] or, token by token, [V², 2]."""
    of_tokens = advantages[:, None].expand(-1, 2) if advantages.dim() == 1 else advantages
    return LossInputs(
        trainer_logprobs=policy.logprobs().reshape(-1),
        behavior_logprobs=behavior.logprobs().detach().reshape(-1),
        advantages=of_tokens.reshape(-1).detach(),
        segments=torch.arange(NUM_SEQUENCES).repeat_interleave(2),
        num_segments=NUM_SEQUENCES,
    )


def mean_under(behavior: TwoSteps, terms: Tensor) -> Tensor:
    """Of the sum over a sequence's two terms, over sequences that the behaviour draws."""
    drawn = behavior.logprobs().detach().sum(dim=1).exp()
    return (drawn * terms.reshape(NUM_SEQUENCES, 2).sum(dim=1)).sum()


def one_token_at_a_time(policy: TwoSteps, behavior: TwoSteps, value: Callable[[Tensor], Tensor]) -> Tensor:
    """Σ over the two places of the mean of `value` [V²], that place's token drawn by the policy, the other by the
    behaviour: what per-token importance weights can be unbiased for."""
    ours, theirs = policy.logprobs(), behavior.logprobs().detach()
    first = (ours[:, 0] + theirs[:, 1]).exp() * value(ours)
    second = (theirs[:, 0] + ours[:, 1]).exp() * value(ours)
    return (first + second).sum()
