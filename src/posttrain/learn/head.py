"""Log-probs of given tokens from hidden states, without ever holding all logits.

Logits exist for a block of tokens at a time and are computed again in the backward pass. Log-probs are float32 from
the products on, whatever the model computes in: logits rounded to bfloat16 would be a sixth of the whole mismatch
with the sampler; the gradient's logits may be rounded. It does not sample.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

SOFTMAX_ROWS = 128
"""Tokens whose float32 logits exist at once: few enough to stay near the processor, enough for its matrix units."""
GRADIENT_ROWS = 1024
"""Tokens whose logit gradients exist at once, in the model's dtype: the weight's gradient is rounded to that dtype
once for each such block."""


def head_logprobs(
    hidden: Tensor, weight: Tensor, targets: Tensor, temperatures: Tensor, *, with_entropy: bool
) -> tuple[Tensor, Tensor | None]:
    """`[N]` log-probs of `targets` under softmax(hidden · weightᵀ / temperature), and that distribution's entropy.

    Both have gradients; an entropy (in nats) that no loss uses costs nothing in the backward pass. `hidden` [N, H] and
    `weight` [V, H] are of the model's dtype; results are float32, or float64 for a float64 model.
    """
    assert hidden.shape[0] == targets.shape[0] == temperatures.shape[0], "one target and temperature per hidden state"
    logprobs, entropy = _HeadLogprobs.apply(  # type: ignore[no-untyped-call]
        hidden, weight, targets, temperatures, with_entropy
    )
    return logprobs, entropy if with_entropy else None


class _Softmax:
    """Log-softmax of blocks of rows, in scratch memory that is allocated once: fresh pages cost more than the sums."""

    def __init__(self, hidden: Tensor, weight: Tensor, temperatures: Tensor) -> None:
        self._hidden, self._weight, self._temperatures = hidden, weight, temperatures
        shape = (min(SOFTMAX_ROWS, len(hidden)), len(weight))
        self._logits = torch.empty(shape, dtype=weight.dtype)
        self._scaled = torch.empty(shape, dtype=temperatures.dtype)
        self._table = torch.empty(shape, dtype=temperatures.dtype)

    def __call__(self, rows: slice) -> Tensor:
        """`[rows, V]`, valid until the next call."""
        hidden, count = self._hidden[rows], len(self._hidden[rows])
        torch.mm(hidden, self._weight.t(), out=self._logits[:count])
        torch.div(self._logits[:count], self._temperatures[rows, None], out=self._scaled[:count])
        table = self._table[:count]
        torch.log_softmax(self._scaled[:count], dim=-1, out=table)
        return table

    def negative_entropy(self, table: Tensor) -> Tensor:
        probabilities = torch.exp(table, out=self._scaled[: len(table)])
        return (probabilities.mul_(table)).sum(-1)

    def gradient(self, rows: slice, targets: Tensor, scale: Tensor) -> Tensor:
        """`[rows, V]` of the logits, valid until the next call; `scale` [rows, 1] is the gradient over temperature.

        d logprob / d logit = (one at the target − probability) / temperature.
        """
        probabilities = self(rows).exp_()
        probabilities.scatter_add_(1, targets, torch.full_like(scale, -1.0))
        return probabilities.mul_(-scale)

    def gradient_with_entropy(self, rows: slice, targets: Tensor, scale: Tensor, entropy_scale: Tensor) -> Tensor:
        """The same, and d entropy / d logit = −probability · (log-probability + entropy) / temperature.

        The entropy is that of these very log-probs, so that its gradient sums to 0 over the vocabulary in any dtype.
        """
        table = self(rows)
        entropy = -self.negative_entropy(table)[:, None]
        probabilities = torch.exp(table, out=self._scaled[: len(table)])
        table.add_(entropy).mul_(entropy_scale).add_(scale)
        gradient = probabilities.mul_(table).neg_()
        return gradient.scatter_add_(1, targets, scale)


class _HeadLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, temperatures: Tensor, with_entropy: bool
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(hidden, weight, targets, temperatures)
        ctx.set_materialize_grads(False)  # None is what tells that the entropy is not used
        logprobs, entropy = torch.empty_like(temperatures), torch.zeros_like(temperatures)
        wide = temperatures.dtype
        softmax = _Softmax(hidden.to(wide), weight.to(wide), temperatures)
        for rows in _blocks(0, len(targets), SOFTMAX_ROWS):
            table = softmax(rows)
            logprobs[rows] = table.gather(1, targets[rows, None]).squeeze(1)
            if with_entropy:
                entropy[rows] = -softmax.negative_entropy(table)
        if not with_entropy:
            ctx.mark_non_differentiable(entropy)
        return logprobs, entropy

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden, weight, targets, temperatures = ctx.saved_tensors
        of_logprobs = gradients[0] if gradients[0] is not None else torch.zeros_like(temperatures)
        scale = (of_logprobs / temperatures)[:, None]
        entropy_scale = None if gradients[1] is None else (gradients[1] / temperatures)[:, None]
        hidden_gradient = torch.empty_like(hidden)
        weight_gradient = torch.zeros_like(weight) if ctx.needs_input_grad[1] else None  # a frozen head has none
        logits_gradient = torch.empty((min(GRADIENT_ROWS, len(targets)), len(weight)), dtype=weight.dtype)
        softmax = _Softmax(hidden, weight, temperatures)
        for block in _blocks(0, len(targets), GRADIENT_ROWS):
            for rows in _blocks(block.start, block.stop, SOFTMAX_ROWS):
                logits_gradient[rows.start - block.start : rows.stop - block.start] = (
                    softmax.gradient(rows, targets[rows, None], scale[rows])
                    if entropy_scale is None
                    else softmax.gradient_with_entropy(rows, targets[rows, None], scale[rows], entropy_scale[rows])
                )
            gradient = logits_gradient[: block.stop - block.start]
            torch.mm(gradient, weight, out=hidden_gradient[block])
            if weight_gradient is not None:
                weight_gradient.addmm_(gradient.t(), hidden[block])
        return hidden_gradient, weight_gradient, None, None, None


def _blocks(start: int, stop: int, size: int) -> Iterator[slice]:
    return (slice(begin, min(begin + size, stop)) for begin in range(start, stop, size))
