"""The operations a decoder is made of, as a seam: plain torch on one side, compiled kernels on the other.

Both must give the same numbers up to rounding, which a test asserts operation by operation. Activations between
operations have the compute type (`dtype`); the residual stream, rotations, scores and logits are float32. The order in
which a layer uses them stands in `llama.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from posttrain.engines.pages import LayerPages


@dataclass(frozen=True)
class Heads:
    """How a projected row divides into queries, keys and values."""

    num_heads: int
    num_kv_heads: int
    head_dim: int

    @property
    def siblings(self) -> int:
        """Query heads that share one key-value head."""
        return self.num_heads // self.num_kv_heads


@dataclass(frozen=True)
class DecodePlan:
    """Who reads which pages in one step; the same for every layer. Rows of one prompt stand together."""

    prompt_of_row: Tensor  # [R] int32, index into the next two
    prompt_pages: Tensor  # [J, m] int32, padded with any page
    prompt_lengths: Tensor  # [J] int32
    own_pages: Tensor  # [R, n] int32, padded with any page
    own_lengths: Tensor  # [R] int32, the token of this step included

    @cached_property
    def first_rows(self) -> Tensor:
        """[J + 1] int32: prompt j's rows are first_rows[j] to first_rows[j + 1]."""
        counts = torch.bincount(self.prompt_of_row, minlength=len(self.prompt_lengths))
        return torch.cat([counts.new_zeros(1), counts.cumsum(0)]).int()

    @cached_property
    def places(self) -> Tensor:
        """[R]: a row's place in a layout [J, W] that gives every prompt as many places as the most shared one needs."""
        within = torch.arange(len(self.prompt_of_row)) - self.first_rows[self.prompt_of_row]
        return self.prompt_of_row * self.width + within

    @cached_property
    def width(self) -> int:
        return int((self.first_rows[1:] - self.first_rows[:-1]).max())


class Linear(Protocol):
    """A weight in the form its operations want; only they look inside."""

    @property
    def out_features(self) -> int: ...


class Operations(Protocol):
    """`T` rows of any sequences, `R` rows in a decode step."""

    dtype: torch.dtype

    def pack(self, weight: Tensor) -> Linear: ...

    def unpack(self, linear: Linear) -> Tensor:
        """The weight as it was packed, bit for bit."""
        ...

    def pack_head(self, weight: Tensor) -> Linear: ...

    def pack_gated(self, gate: Tensor, up: Tensor) -> Linear: ...

    def unpack_gated(self, linear: Linear) -> tuple[Tensor, Tensor]: ...

    def norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """RMSNorm of the residual stream: [T, H] float32 → [T, H]."""
        ...

    def project(self, x: Tensor, linear: Linear) -> Tensor:
        """[T, K] → [T, N] float32."""
        ...

    def add_project(self, residual: Tensor, x: Tensor, linear: Linear) -> None:
        """residual [T, N] += x [T, K] · Wᵀ, in place."""
        ...

    def gated(self, x: Tensor, linear: Linear) -> Tensor:
        """silu(x · gateᵀ) · (x · upᵀ): [T, K] → [T, N]."""
        ...

    def rotate_and_store(
        self, qkv: Tensor, angles: tuple[Tensor, Tensor], heads: Heads, pages: LayerPages, slots: Tensor
    ) -> None:
        """Rotate queries and keys of `qkv` [T, (heads + 2·KVH)·D] float32 in place; put keys and values into their
        slots (page · PAGE + offset, [T] int64). `angles`: cosines and sines, [T, D/2]."""
        ...

    def attend(self, qkv: Tensor, heads: Heads, pages: LayerPages, plan: DecodePlan) -> Tensor:
        """Each row's query over its prompt and its own tokens: → [R, heads·D]."""
        ...

    def logits(self, hidden: Tensor, head: Linear) -> Tensor:
        """[R, H] → [R, V] float32."""
        ...
