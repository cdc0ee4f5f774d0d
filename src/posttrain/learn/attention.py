"""Attention of packed rows part by part, so that memory grows with the length of a row and not with its square.

A part is a run of queries that attends to a run of keys: to itself, causally (a triangle), or to all of an earlier
run (a rectangle: completions and the prefix they share). Each is one call of torch's flash kernel, which shares key
and value heads among query heads without copying them. Where a query is in two parts, their outputs are merged by
their log-sum-exps, and the kernel's backward, given the merged output and log-sum-exp, yields each part's exact share
of the gradient (Dao, arXiv:2307.08691, section 3.1; Liu et al., arXiv:2310.01889, do the same around a ring). The
kernels are those of the CPU; no mask is built and no `[T, T]` exists.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

NAME = "sdpa_in_parts"
"""Among transformers' attention functions; it has to contain "sdpa", so that a model without that is refused."""

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


class Part(NamedTuple):
    """Queries `[query_start, query_end)` of a row that see keys `[key_start, key_end)` of it."""

    row: int
    query_start: int
    query_end: int
    key_start: int
    key_end: int

    @property
    def causal(self) -> bool:
        """A run that attends to itself sees its past; an earlier run is seen whole."""
        return self.query_start == self.key_start

    def queries(self, tensor: Tensor) -> Tensor:
        """Of `[B, heads, T, …]`, as a batch of one."""
        return tensor[self.row : self.row + 1, :, self.query_start : self.query_end]

    def keys(self, tensor: Tensor) -> Tensor:
        return tensor[self.row : self.row + 1, :, self.key_start : self.key_end]


@dataclass(frozen=True)
class Detour:
    """In a mask's place: who attends instead. Makes `[B, heads, T, D]` of query, key, value and scale, or raises."""

    attend: Callable[[Tensor, Tensor, Tensor, float], Tensor]


def attention_in_parts(query: Tensor, key: Tensor, value: Tensor, parts: Tensor, scale: float) -> Tensor:
    """`[B, heads, T, D]`; positions that are in no part get 0.

    `query` is `[B, heads, T, D]`; `key` and `value` have as many heads or a divisor of that; `parts` is `[A, 5]` int64,
    the fields of `Part`. No key may reach a query through two parts.
    """
    assert parts.ndim == 2, "a table of parts"
    output: Tensor = _AttentionInParts.apply(query, key, value, [Part(*part) for part in parts.tolist()], scale)  # type: ignore[no-untyped-call]
    return output


def is_dense(mask: Tensor | None) -> bool:
    """Whether it is `[B, 1, T, T]`, and neither a table of parts nor None, which means plain causal attention."""
    return mask is not None and mask.dtype != torch.int64


def register() -> None:
    """Make `NAME` known to transformers: a mask of integers `[1, 1, A, 5]` is a table of parts, any other is sdpa's.

    The table travels in the mask's place because every model hands a mask of four dimensions through unread.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(NAME, _in_parts_or(sdpa_attention_forward))
    AttentionMaskInterface.register(NAME, sdpa_mask)


def _in_parts_or(dense: Callable[..., Any]) -> Callable[..., Any]:
    def forward(
        module: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | Detour | None,
        scaling: float | None = None,
        **options: Any,
    ) -> tuple[Tensor, None]:
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        if isinstance(attention_mask, Detour):
            return attention_mask.attend(query, key, value, scale).transpose(1, 2), None
        if attention_mask is None or is_dense(attention_mask):
            attended: tuple[Tensor, None] = dense(module, query, key, value, attention_mask, scaling=scaling, **options)
            return attended
        return attention_in_parts(query, key, value, attention_mask[0, 0], scale).transpose(1, 2), None

    return forward


class _AttentionInParts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, parts: list[Part], scale: float) -> Tensor:
        output, logsumexp = attend(query, key, value, parts, scale)
        ctx.save_for_backward(query, key, value, output, logsumexp)
        ctx.parts, ctx.scale = parts, scale
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, output, logsumexp = ctx.saved_tensors
        of_heads = attend_backward(gradients[0], query, key, value, output, logsumexp, ctx.parts, ctx.scale)
        return *of_heads, None, None


def attend(query: Tensor, key: Tensor, value: Tensor, parts: list[Part], scale: float) -> tuple[Tensor, Tensor]:
    """What `attention_in_parts` gives, without gradients, and the scores' log-sum-exp `[B, heads, T]`."""
    num_rows, num_heads, length, _ = query.shape
    if _is_one_triangle(query, parts):
        whole: tuple[Tensor, Tensor] = _flash(query, key, value, 0.0, True, scale=scale)
        return whole
    wide = torch.promote_types(query.dtype, torch.float32)
    # Heads lie beside one another, as the kernel has it and the output projection wants it.
    output = query.new_zeros((num_rows, length, num_heads, value.shape[-1])).transpose(1, 2)
    logsumexp = query.new_full((num_rows, length, num_heads), -torch.inf, dtype=wide).transpose(1, 2)
    for part in parts:
        new, new_logsumexp = _flash(
            part.queries(query), part.keys(key), part.keys(value), 0.0, part.causal, scale=scale
        )
        old, old_logsumexp = part.queries(output), part.queries(logsumexp)
        share = torch.sigmoid(new_logsumexp - old_logsumexp)  # 1 where nothing was before
        old.copy_(torch.lerp(old.to(wide), new.to(wide), share[..., None]))
        torch.logaddexp(old_logsumexp, new_logsumexp, out=old_logsumexp)
    return output, logsumexp


def attend_backward(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    logsumexp: Tensor,
    parts: list[Part],
    scale: float,
) -> tuple[Tensor, ...]:
    """Gradients of query, key and value, from that of the output and from what `attend` took and gave."""
    if _is_one_triangle(query, parts):
        whole: tuple[Tensor, ...] = _flash_backward(
            gradient, query, key, value, output, logsumexp, 0.0, True, scale=scale
        )
        return whole
    # A prefix's keys collect from several parts: summed wide, rounded once.
    totals = [torch.zeros_like(tensor, dtype=logsumexp.dtype) for tensor in (query, key, value)]
    for part in parts:
        shares = _flash_backward(
            part.queries(gradient),
            part.queries(query),
            part.keys(key),
            part.keys(value),
            part.queries(output),
            part.queries(logsumexp),
            0.0,
            part.causal,
            scale=scale,
        )
        part.queries(totals[0]).add_(shares[0])
        part.keys(totals[1]).add_(shares[1])
        part.keys(totals[2]).add_(shares[2])
    return tuple(total.to(query.dtype) for total in totals)


def _is_one_triangle(query: Tensor, parts: list[Part]) -> bool:
    """Whether one row attends to itself and that is all: the kernel's own results are then the answer, uncopied."""
    return len(query) == 1 and parts == [Part(0, 0, query.shape[2], 0, query.shape[2])]
