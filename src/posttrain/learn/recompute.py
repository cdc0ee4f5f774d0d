"""Layers that keep their input alone and are computed again in the backward pass (Chen et al., arXiv:1604.06174).

Rows that are short compute a layer again as a whole: the same operations in the same order. In long ones everything
but attention is done for a chunk of positions at a time, forward and backward, so that what a layer needs beside a few
tensors of its input's size does not grow with the length; weight gradients are then summed over chunks, at least in
float32. A layer's own `forward` is what is called, with a detour where attention would be: nothing is known of it but
that positions meet in attention alone, once a layer, which `learn/policy.py` tries at load.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from posttrain.core.errors import ModelError
from posttrain.learn.attention import Detour, Part, attend, attend_backward, is_dense
from posttrain.workers import heap

CHUNK_POSITIONS = 1024
"""Of a chunk, all rows together, at most: enough for the processor's matrix units. Rows up to this length are short."""
KEPT_FREE_BYTES = 64 << 20
"""Free memory that a layer of a long row leaves in the heap. Where tensors that stay lie between others that come and
go, the heap is soon half holes; to return them costs nothing beside such a layer."""


@dataclass
class Recomputation:
    """What all recomputed layers of one model have in common."""

    chunk_positions: int | None = None
    """`CHUNK_POSITIONS` where it is None; set to try chunks on short rows."""

    def chunks(self, hidden: Tensor) -> list[slice]:
        """Of nearly one size each, along the positions of `[B, T, H]`; one where the rows are short."""
        num_rows, length, _ = hidden.shape
        longest = self.chunk_positions or CHUNK_POSITIONS
        count = math.ceil(num_rows * length / longest) if length > longest else 1
        borders = [length * index // count for index in range(count + 1)]
        return [slice(start, end) for start, end in itertools.pairwise(borders) if start < end]


def recompute_layers(model: Any, folder: Path) -> Recomputation:
    """Not transformers' own switch: that one works in training mode only, where dropout is on.

    Raises `ModelError` where it is not known which modules are layers.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        raise ModelError(f"{model.config.model_type} in {folder} has no layers that are known to compute again alike")
    recomputation = Recomputation()
    for layer in layers:
        layer.forward = _Forward(layer, layer.forward, recomputation)
    return recomputation


class _Forward:
    """In the place of a layer's `forward`."""

    def __init__(self, layer: nn.Module, forward: Callable[..., Tensor], recomputation: Recomputation) -> None:
        self._layer = layer
        self._forward = forward
        self._recomputation = recomputation

    def __call__(self, hidden: Tensor, attention_mask: Tensor | None = None, **options: Any) -> Tensor:
        chunks = self._recomputation.chunks(hidden)
        if len(chunks) == 1 or is_dense(attention_mask):
            whole: Tensor = checkpoint(
                self._forward,
                hidden,
                attention_mask=attention_mask,
                use_reentrant=False,
                preserve_rng_state=False,
                **options,
            )
            return whole
        layer = _LayerInChunks(self._forward, _parts(attention_mask, hidden), options, chunks)
        parameters = [parameter for parameter in self._layer.parameters() if parameter.requires_grad]
        output: Tensor = _InChunks.apply(layer, hidden, *parameters)  # type: ignore[no-untyped-call]
        return output


def _parts(mask: Tensor | None, hidden: Tensor) -> list[Part]:
    if mask is not None:
        return [Part(*part) for part in mask[0, 0].tolist()]
    num_rows, length, _ = hidden.shape
    return [Part(row, 0, length, 0, length) for row in range(num_rows)]


class _Split(Exception):
    """Leaves a layer's forward pass where attention would begin."""


class _LayerInChunks:
    """A layer over given rows as two functions of a chunk, with attention between them."""

    def __init__(
        self, forward: Callable[..., Tensor], parts: list[Part], options: dict[str, Any], chunks: list[slice]
    ) -> None:
        self._forward = forward
        self._options = options
        self._length = chunks[-1].stop
        self.parts = parts
        self.chunks = chunks
        self.scale = math.nan
        """Of attention's scores; known once `before` was called."""

    def before(self, hidden: Tensor, chunk: slice) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value `[B, heads, C, D]` from the layer's input `[B, C, H]`."""
        found: list[tuple[Tensor, Tensor, Tensor]] = []

        def leave(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
            self.scale = scale
            found.append((query, key, value))
            raise _Split

        try:
            self._run(hidden, chunk, leave)
        except _Split:
            return found[0]
        raise AssertionError("the layer never attended")

    def after(self, hidden: Tensor, attended: Tensor, chunk: slice) -> Tensor:
        """The layer's output `[B, C, H]` from its input and what attention gave, `[B, heads, C, D]`."""
        return self._run(hidden, chunk, lambda *_: attended)

    def heads(self, hidden: Tensor) -> list[Tensor]:
        """`before` of all chunks."""
        whole: list[Tensor] = []
        for chunk in self.chunks:
            pieces = self.before(hidden[:, chunk], chunk)
            if not whole:
                whole = [_for_all_positions(piece, self._length) for piece in pieces]
            for tensor, piece in zip(whole, pieces, strict=True):
                tensor[:, :, chunk] = piece
        return whole

    def _run(self, hidden: Tensor, chunk: slice, attend: Callable[..., Tensor]) -> Tensor:
        options = {name: self._of_chunk(option, chunk) for name, option in self._options.items()}
        return self._forward(hidden, attention_mask=Detour(attend), **options)

    def _of_chunk(self, option: Any, chunk: slice) -> Any:
        """Positions and their embeddings are per position, `[B or 1, T, …]`; all else concerns the layer as a whole."""
        if isinstance(option, tuple):
            return tuple(self._of_chunk(item, chunk) for item in option)
        if isinstance(option, Tensor) and option.ndim >= 2 and option.shape[1] == self._length:
            return option[:, chunk]
        return option


def _for_all_positions(piece: Tensor, length: int) -> Tensor:
    """`[B, heads, T, D]` with heads beside one another, as projections lay them."""
    num_rows, num_heads, _, size = piece.shape
    return piece.new_empty((num_rows, length, num_heads, size)).transpose(1, 2)


class _InChunks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, layer: _LayerInChunks, hidden: Tensor, *parameters: Tensor) -> Tensor:
        output = torch.empty_like(hidden)  # first of all: it stays, what follows goes
        query, key, value = layer.heads(hidden)
        attended, _ = attend(query, key, value, layer.parts, layer.scale)
        del query, key, value
        for chunk in layer.chunks:
            output[:, chunk] = layer.after(hidden[:, chunk], attended[:, :, chunk], chunk)
        ctx.save_for_backward(hidden)
        ctx.layer, ctx.parameters = layer, parameters
        del attended
        heap.give_back(KEPT_FREE_BYTES)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (hidden,) = ctx.saved_tensors
        layer: _LayerInChunks = ctx.layer
        heap.give_back(KEPT_FREE_BYTES)  # what the head had, before the first layer
        totals = _Totals(ctx.parameters)
        hidden_gradient = torch.empty_like(hidden)
        heads = layer.heads(hidden)
        attended, logsumexp = attend(heads[0], heads[1], heads[2], layer.parts, layer.scale)
        of_attended = torch.empty_like(attended)
        for chunk in layer.chunks:
            before, given = _leaf(hidden[:, chunk]), _leaf(attended[:, :, chunk])
            with torch.enable_grad():
                output = layer.after(before, given, chunk)
            hidden_gradient[:, chunk], of_attended[:, :, chunk] = totals.add(
                [output], [gradients[0][:, chunk]], [before, given]
            )
        query, key, value = heads
        of_heads = attend_backward(of_attended, query, key, value, attended, logsumexp, layer.parts, layer.scale)
        del heads, query, key, value, attended, of_attended
        for chunk in layer.chunks:
            before = _leaf(hidden[:, chunk])
            with torch.enable_grad():
                pieces = layer.before(before, chunk)
            (share,) = totals.add(pieces, [gradient[:, :, chunk] for gradient in of_heads], [before])
            hidden_gradient[:, chunk] += share
        del of_heads
        heap.give_back(KEPT_FREE_BYTES)
        return None, hidden_gradient, *totals.gradients()


class _Totals:
    """Gradients of parameters, summed over chunks: wide, and rounded once."""

    def __init__(self, parameters: tuple[Tensor, ...]) -> None:
        self._parameters = parameters
        self._sums: list[Tensor | None] = [None for _ in parameters]

    def add(self, outputs: Any, gradients: list[Tensor], inputs: list[Tensor]) -> tuple[Tensor, ...]:
        """Returns the gradients of `inputs`."""
        found = torch.autograd.grad(outputs, [*inputs, *self._parameters], gradients, allow_unused=True)
        for index, gradient in enumerate(found[len(inputs) :]):
            if gradient is None:
                continue
            total = self._sums[index]
            if total is None:
                self._sums[index] = gradient.to(torch.promote_types(gradient.dtype, torch.float32))
            else:
                total += gradient
        return found[: len(inputs)]

    def gradients(self) -> Iterator[Tensor | None]:
        """Each in its parameter's dtype; None for a parameter that nothing depends on."""
        for parameter, total in zip(self._parameters, self._sums, strict=True):
            yield None if total is None else total.to(parameter.dtype)


def _leaf(tensor: Tensor) -> Tensor:
    return tensor.detach().requires_grad_()
