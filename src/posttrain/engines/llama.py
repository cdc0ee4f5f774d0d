"""The forward pass of a Llama or Qwen decoder over paged keys and values: whole prompts, then one token a row.

After Touvron et al. 2023 (RMSNorm, rotary embeddings, SwiGLU) with grouped-query attention (Ainslie et al. 2023), and
what Qwen 2 and Qwen 3 add. The residual stream is float32 whatever the compute type. It neither samples nor knows
requests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from posttrain.engines.architecture import LlamaShape
from posttrain.engines.operations import DecodePlan, Heads, Operations
from posttrain.engines.pages import LayerPages, PagePool
from posttrain.engines.weights import LayerWeights, LlamaWeights

Attend = Callable[[Tensor, LayerPages], Tensor]
"""(rotated qkv [T, …], the layer's pages) → [T, heads·D] in the compute type."""


@dataclass(frozen=True)
class Llama:
    shape: LlamaShape
    weights: LlamaWeights
    operations: Operations

    @property
    def heads(self) -> Heads:
        return Heads(self.shape.num_heads, self.shape.num_kv_heads, self.shape.head_dim)

    def prefill(self, prompts: Sequence[Tensor], slots: Tensor, pool: PagePool) -> Tensor:
        """Compute whole prompts, one behind the other without padding; `slots` says where their keys and values go.

        Returns the last hidden state of each, [J, H] in the compute type, ready for the head.
        """
        lengths = [len(prompt) for prompt in prompts]
        positions = torch.cat([torch.arange(length) for length in lengths])
        hidden = self._layers(
            torch.cat(list(prompts)), positions, slots, pool, lambda qkv, _: self._attend_prompts(qkv, lengths)
        )
        return self._final(hidden[torch.tensor(lengths).cumsum(0) - 1])

    def decode(self, tokens: Tensor, positions: Tensor, slots: Tensor, pool: PagePool, plan: DecodePlan) -> Tensor:
        """Feed one token a row: [R] → hidden states [R, H], ready for the head."""
        heads, operations = self.heads, self.operations
        hidden = self._layers(
            tokens, positions, slots, pool, lambda qkv, pages: operations.attend(qkv, heads, pages, plan)
        )
        return self._final(hidden)

    def logits(self, hidden: Tensor) -> Tensor:
        """[R, V] float32."""
        return self.operations.logits(hidden, self.weights.head)

    def _layers(self, tokens: Tensor, positions: Tensor, slots: Tensor, pool: PagePool, attend: Attend) -> Tensor:
        residual = self.weights.embedding[tokens].float()
        angles = self.shape.rotation.angles(positions)
        for layer, pages in zip(self.weights.layers, pool.layers, strict=True):
            self._layer(residual, layer, pages, angles, slots, attend)
        return residual

    def _layer(
        self,
        residual: Tensor,
        layer: LayerWeights,
        pages: LayerPages,
        angles: tuple[Tensor, Tensor],
        slots: Tensor,
        attend: Attend,
    ) -> None:
        operations, eps = self.operations, self.shape.norm_eps
        qkv = operations.project(operations.norm(residual, layer.attention_norm, eps), layer.qkv)
        self._adjust(qkv, layer)
        operations.rotate_and_store(qkv, angles, self.heads, pages, slots)
        operations.add_project(residual, attend(qkv, pages), layer.out)
        gated = operations.gated(operations.norm(residual, layer.mlp_norm, eps), layer.gate_up)
        operations.add_project(residual, gated, layer.down)

    def _final(self, hidden: Tensor) -> Tensor:
        return self.operations.norm(hidden, self.weights.norm, self.shape.norm_eps)

    def _adjust(self, qkv: Tensor, layer: LayerWeights) -> None:
        """Biases, and norms of each head, in place: float32, before the rotation."""
        if layer.qkv_bias is not None:
            qkv += layer.qkv_bias
        if layer.query_norm is not None and layer.key_norm is not None:
            dim, num_heads, num_kv_heads = self.shape.head_dim, self.shape.num_heads, self.shape.num_kv_heads
            rows = qkv.view(len(qkv), -1, dim)
            for part, weight in (
                (rows[:, :num_heads], layer.query_norm),
                (rows[:, num_heads : num_heads + num_kv_heads], layer.key_norm),
            ):
                part.copy_(F.rms_norm(part, (dim,), weight, self.shape.norm_eps))

    def _attend_prompts(self, qkv: Tensor, lengths: Sequence[int]) -> Tensor:
        """Causal attention inside each prompt, which has no keys but its own."""
        heads = self.heads
        rows = qkv.view(len(qkv), -1, heads.head_dim).to(self.operations.dtype).transpose(0, 1)
        sizes = [heads.num_heads, heads.num_kv_heads, heads.num_kv_heads]
        outputs = []
        for prompt in rows.split(list(lengths), dim=1):
            query, key, value = prompt[None].split(sizes, dim=1)  # [1, heads, L, D]
            key, value = (part.repeat_interleave(heads.siblings, dim=1) for part in (key, value))
            outputs.append(F.scaled_dot_product_attention(query, key, value, is_causal=True)[0])
        return torch.cat(outputs, dim=1).transpose(0, 1).reshape(len(qkv), -1)
