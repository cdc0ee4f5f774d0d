"""The operations through the compiled kernels: bfloat16 weights and activations, float32 sums, logits included.

Prompts, whose attention torch does well, share everything here but that. Shapes that the kernels cannot tile are
refused by `refusal`, before an engine is built on them.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import torch
from torch import Tensor

from posttrain.engines.architecture import LlamaShape
from posttrain.engines.operations import DecodePlan, Heads, Linear
from posttrain.engines.pages import LayerPages

_TILE = 64
_LANES = 16
_MAX_SIBLINGS = 64


def refusal(shape: LlamaShape) -> str | None:
    """Why the kernels cannot run a model of this shape; None where they can."""
    sizes = {"hidden_size": shape.hidden_size, "intermediate_size": shape.intermediate_size, "heads": shape.query_size}
    for name, size in sizes.items():
        if size % (_TILE // 2) != 0:
            return f"the kernels work on multiples of {_TILE // 2}, and {name} gives {size}"
    if shape.head_dim % _LANES != 0:
        return f"the kernels work on heads of a multiple of {_LANES}, and head_dim is {shape.head_dim}"
    if shape.num_heads // shape.num_kv_heads > _MAX_SIBLINGS:
        return f"the kernels share a key-value head between {_MAX_SIBLINGS} query heads at most"
    return None


@dataclass(frozen=True)
class KernelLinear:
    packed: Tensor  # [ceil(N / 64), K / 2, 64, 2]
    out_features: int

    @property
    def in_features(self) -> int:
        return 2 * self.packed.shape[1]


class KernelOperations:
    """Implements `operations.Operations`."""

    dtype = torch.bfloat16

    def __init__(self, kernels: ctypes.CDLL) -> None:
        self._kernels = kernels

    def pack(self, weight: Tensor) -> KernelLinear:
        weight = weight.to(self.dtype).contiguous()
        rows, columns = weight.shape
        packed = torch.empty(-(-rows // _TILE), columns // 2, _TILE, 2, dtype=self.dtype)
        self._kernels.pack(_pointer(weight), _pointer(packed), *_sizes(rows, columns), _threads())
        return KernelLinear(packed, rows)

    def pack_head(self, weight: Tensor) -> KernelLinear:
        return self.pack(weight)

    def unpack(self, linear: Linear) -> Tensor:
        assert isinstance(linear, KernelLinear)
        weight = torch.empty(linear.out_features, linear.in_features, dtype=self.dtype)
        self._kernels.unpack(_pointer(linear.packed), _pointer(weight), *_sizes(*weight.shape), _threads())
        return weight

    def pack_gated(self, gate: Tensor, up: Tensor) -> KernelLinear:
        """Half of a block's columns are the gate's, half the up projection's: one tile has both."""
        parts = [weight.to(self.dtype).unflatten(0, (-1, _TILE // 2)) for weight in (gate, up)]
        return self.pack(torch.stack(parts, dim=1).flatten(0, 2))

    def unpack_gated(self, linear: Linear) -> tuple[Tensor, Tensor]:
        blocks = self.unpack(linear).unflatten(0, (-1, 2, _TILE // 2))
        return blocks[:, 0].flatten(0, 1), blocks[:, 1].flatten(0, 1)

    def norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        out = torch.empty_like(x, dtype=self.dtype)
        epsilon = ctypes.c_float(eps)
        self._kernels.norm(_pointer(x), _pointer(weight), epsilon, _pointer(out), *_sizes(*x.shape), _threads())
        return out

    def project(self, x: Tensor, linear: Linear) -> Tensor:
        out = torch.empty(len(x), linear.out_features)
        self._project(x, linear, out, add=False)
        return out

    def add_project(self, residual: Tensor, x: Tensor, linear: Linear) -> None:
        self._project(x, linear, residual, add=True)

    def gated(self, x: Tensor, linear: Linear) -> Tensor:
        assert isinstance(linear, KernelLinear)
        rows, inner, outer = len(x), linear.in_features, linear.out_features // 2
        assert x.shape == (rows, inner), x.shape
        out = torch.empty(rows, outer, dtype=self.dtype)
        sizes = _sizes(rows, inner, outer)
        self._kernels.gated(_pointer(x), _pointer(linear.packed), _pointer(out), *sizes, _threads())
        return out

    def rotate_and_store(
        self, qkv: Tensor, angles: tuple[Tensor, Tensor], heads: Heads, pages: LayerPages, slots: Tensor
    ) -> None:
        sizes = _sizes(len(qkv), heads.num_heads, heads.num_kv_heads, heads.head_dim, pages.keys.shape[1])
        tensors = (qkv, *angles, pages.keys, pages.values, slots)
        self._kernels.rotate_and_store(*map(_pointer, tensors), *sizes, _threads())

    def attend(self, qkv: Tensor, heads: Heads, pages: LayerPages, plan: DecodePlan) -> Tensor:
        out = torch.empty(len(qkv), heads.num_heads * heads.head_dim, dtype=self.dtype)
        tensors = (
            *(qkv, out, pages.keys, pages.values),
            *(plan.first_rows, plan.prompt_pages, plan.prompt_lengths, plan.own_pages, plan.own_lengths),
        )
        sizes = _sizes(
            *(*plan.prompt_pages.shape, plan.own_pages.shape[1]),
            *(heads.num_heads, heads.num_kv_heads, heads.head_dim, pages.keys.shape[1]),
        )
        self._kernels.attend(*map(_pointer, tensors), *sizes, _threads())
        return out

    def logits(self, hidden: Tensor, head: Linear) -> Tensor:
        return self.project(hidden, head)

    def _project(self, x: Tensor, linear: Linear, out: Tensor, *, add: bool) -> None:
        assert isinstance(linear, KernelLinear)
        assert x.shape[1] == linear.in_features, (x.shape, linear.in_features)
        assert out.shape == (len(x), linear.out_features), out.shape
        sizes = _sizes(len(x), linear.in_features, linear.out_features)
        self._kernels.project(
            _pointer(x), _pointer(linear.packed), _pointer(out), *sizes, ctypes.c_int(add), _threads()
        )


def _pointer(tensor: Tensor) -> ctypes.c_void_p:
    assert tensor.is_contiguous(), tensor.stride()
    return ctypes.c_void_p(tensor.data_ptr())


def _sizes(*sizes: int) -> tuple[ctypes.c_int64, ...]:
    return tuple(ctypes.c_int64(size) for size in sizes)


def _threads() -> ctypes.c_int:
    return ctypes.c_int(torch.get_num_threads())
