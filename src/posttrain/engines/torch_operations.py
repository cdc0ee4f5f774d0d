"""The operations in plain torch: what runs where no kernels can be built, and what kernels are tested against.

Weights are prepacked through torch's private mkldnn operators where they exist, which gains most for few rows, and
plain otherwise. No Python loop over rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from posttrain.engines.operations import DecodePlan, Heads, Linear
from posttrain.engines.pages import PAGE, LayerPages

_PACKING_ROWS = 128


@dataclass(frozen=True)
class TorchLinear:
    """`weight` [N, K], in mkldnn's own layout where `packed`."""

    weight: Tensor
    out_features: int
    packed: bool

    def __call__(self, x: Tensor) -> Tensor:
        if self.packed:
            product: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, None, "none", [], "")
            return product
        return F.linear(x, self.weight)


class TorchOperations:
    """Implements `operations.Operations`."""

    def __init__(self, dtype: torch.dtype, *, prepack: bool = True) -> None:
        self.dtype = dtype
        self._prepack = prepack and _can_prepack(dtype)

    def pack(self, weight: Tensor) -> TorchLinear:
        return self._packed(weight.to(self.dtype))

    def pack_head(self, weight: Tensor) -> TorchLinear:
        """Float32 whatever the compute type: mkldnn rounds its output to the input's type, and logits rounded to
        bfloat16 would be the largest error in the engine. The weights keep their values."""
        return self._packed(weight.to(self.dtype).float())

    def unpack(self, linear: Linear) -> Tensor:
        assert isinstance(linear, TorchLinear)
        weight = linear.weight.to_dense() if linear.packed else linear.weight
        return weight.to(self.dtype)

    def pack_gated(self, gate: Tensor, up: Tensor) -> TorchLinear:
        return self.pack(torch.cat([gate, up]))

    def unpack_gated(self, linear: Linear) -> tuple[Tensor, Tensor]:
        gate, up = self.unpack(linear).chunk(2)
        return gate, up

    def norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], weight, eps).to(self.dtype)

    def project(self, x: Tensor, linear: Linear) -> Tensor:
        return _apply(linear, x).float()

    def add_project(self, residual: Tensor, x: Tensor, linear: Linear) -> None:
        residual += _apply(linear, x)

    def gated(self, x: Tensor, linear: Linear) -> Tensor:
        gate, up = _apply(linear, x).chunk(2, dim=1)
        return F.silu(gate) * up

    def rotate_and_store(
        self, qkv: Tensor, angles: tuple[Tensor, Tensor], heads: Heads, pages: LayerPages, slots: Tensor
    ) -> None:
        rows = qkv.view(len(qkv), -1, heads.head_dim)
        rotated = heads.num_heads + heads.num_kv_heads
        first, second = rows[:, :rotated].chunk(2, dim=2)  # the halves of a rotation, as Llama pairs dimensions
        cosines, sines = (angle[:, None] for angle in angles)
        turned = first * cosines - second * sines
        second.mul_(cosines).add_(first * sines)
        first.copy_(turned)
        page, offset = slots // PAGE, slots % PAGE
        pages.keys[:, page, :, offset] = rows[:, heads.num_heads : rotated].to(self.dtype)
        pages.values[:, page, offset] = rows[:, rotated:].transpose(0, 1).to(self.dtype)

    def attend(self, qkv: Tensor, heads: Heads, pages: LayerPages, plan: DecodePlan) -> Tensor:
        rows, dim, shared = len(qkv), heads.head_dim, heads.siblings
        queries = qkv[:, : heads.num_heads * dim].reshape(rows, heads.num_kv_heads, shared, dim).transpose(0, 1)
        queries = (queries * dim**-0.5).to(self.dtype)  # [KVH, R, G, D]
        spread = _spread(queries, plan)  # [KVH, J, W·G, D]
        prompt_scores = _gather_rows(_scores(spread, pages.keys, plan.prompt_pages), plan, rows, shared)
        own_scores = _scores(queries, pages.keys, plan.own_pages)  # [KVH, R, G, n·PAGE]
        num_prompt = prompt_scores.shape[-1]
        mask = torch.cat(
            [
                _beyond(plan.prompt_lengths[plan.prompt_of_row], num_prompt),
                _beyond(plan.own_lengths, own_scores.shape[-1]),
            ],
            dim=1,
        )
        scores = torch.cat([prompt_scores, own_scores], dim=3).float().masked_fill_(mask[None, :, None], -torch.inf)
        weights = scores.softmax(dim=3).to(self.dtype)
        from_prompt = _spread(weights[..., :num_prompt], plan) @ _values(pages.values, plan.prompt_pages)
        out = _gather_rows(from_prompt, plan, rows, shared).float()
        out += weights[..., num_prompt:] @ _values(pages.values, plan.own_pages)
        return out.transpose(0, 1).reshape(rows, -1).to(self.dtype)

    def logits(self, hidden: Tensor, head: Linear) -> Tensor:
        return _apply(head, hidden.float())

    def _packed(self, weight: Tensor) -> TorchLinear:
        if not self._prepack:
            return TorchLinear(weight.clone(), len(weight), packed=False)
        packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), _PACKING_ROWS)
        return TorchLinear(packed, len(weight), packed=True)


def _can_prepack(dtype: torch.dtype) -> bool:
    """The operators are private: where a release lacks or changes them, the plain ones do."""
    try:
        weight = torch.ones(16, 16, dtype=dtype)
        packed = torch.ops.mkldnn._reorder_linear_weight(weight, 1)
        product = torch.ops.mkldnn._linear_pointwise(weight[:1], packed, None, "none", [], "")
        return bool((product == 16).all()) and torch.equal(packed.to_dense(), weight)
    except (AttributeError, RuntimeError, NotImplementedError):
        return False


def _apply(linear: Linear, x: Tensor) -> Tensor:
    assert isinstance(linear, TorchLinear)
    return linear(x)


def _scores(queries: Tensor, keys: Tensor, table: Tensor) -> Tensor:
    """[KVH, B, Q, D] over the pages of each of B: → [KVH, B, Q, pages·PAGE]."""
    heads, batch, num_queries, _ = queries.shape
    per_page = queries[:, :, None] @ keys[:, table]  # [KVH, B, pages, Q, PAGE]
    return per_page.transpose(2, 3).reshape(heads, batch, num_queries, -1)


def _values(values: Tensor, table: Tensor) -> Tensor:
    """→ [KVH, B, pages·PAGE, D]."""
    return values[:, table].flatten(2, 3)


def _beyond(lengths: Tensor, size: int) -> Tensor:
    """[B, size], True where there is no token."""
    return torch.arange(size) >= lengths[:, None]


def _spread(rows: Tensor, plan: DecodePlan) -> Tensor:
    """[KVH, R, G, X] → [KVH, J, W·G, X]: the queries of one prompt's rows become one matrix."""
    heads, _, shared, size = rows.shape
    num_prompts = len(plan.prompt_lengths)
    out = rows.new_zeros(heads, num_prompts * plan.width, shared, size)
    out[:, plan.places] = rows
    return out.view(heads, num_prompts, plan.width * shared, size)


def _gather_rows(spread: Tensor, plan: DecodePlan, rows: int, shared: int) -> Tensor:
    """The inverse of `_spread`."""
    heads, size = spread.shape[0], spread.shape[-1]
    return spread.reshape(heads, -1, shared, size)[:, plan.places].view(heads, rows, shared, size)
