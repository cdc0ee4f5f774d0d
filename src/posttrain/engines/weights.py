"""The weights that sample: read from a folder, packed for the operations, replaced in place by a publish.

Queries, keys and values are one matrix, gate and up another; no second copy is kept, so the fingerprint is taken of
the packed weights themselves, unpacked again. It does not compute with them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from posttrain.core.errors import EngineError
from posttrain.engines.architecture import LlamaShape
from posttrain.engines.checkpoint import Checkpoint, open_checkpoint, tensors_fingerprint
from posttrain.engines.operations import Linear, Operations

_LOG = logging.getLogger(__name__)


@dataclass
class LayerWeights:
    attention_norm: Tensor  # [H] float32
    qkv: Linear
    qkv_bias: Tensor | None  # [(heads + 2·KVH)·D] float32
    query_norm: Tensor | None  # [D] float32
    key_norm: Tensor | None  # [D] float32
    out: Linear
    mlp_norm: Tensor  # [H] float32
    gate_up: Linear
    down: Linear


class LlamaWeights:
    """All weights of one model; `load` fills and refills them."""

    embedding: Tensor  # [V, H], compute type
    norm: Tensor  # [H] float32
    head: Linear

    def __init__(self, shape: LlamaShape, operations: Operations) -> None:
        self._shape = shape
        self._operations = operations
        self.layers: list[LayerWeights] = []
        self._published_dtypes: dict[str, torch.dtype] = {}

    def load(self, folder: Path) -> None:
        """Raises `EngineError`, before anything is replaced, where the folder does not fit the model."""
        shapes = self._shape.tensors()
        with open_checkpoint(folder) as checkpoint:
            checkpoint.check(shapes, ignored=("lm_head.weight",) if self._shape.tied else ())
            self.embedding = checkpoint.tensor("model.embed_tokens.weight").to(self._operations.dtype, copy=True)
            self.norm = checkpoint.tensor("model.norm.weight").to(torch.float32, copy=True)
            self.head = self._operations.pack_head(checkpoint.tensor(self._shape.head_name))
            for layer in range(self._shape.num_layers):  # one at a time: old and new are never both whole in memory
                self.layers[layer : layer + 1] = [self._layer(checkpoint, layer)]
            self._published_dtypes = {name: checkpoint.tensor(name).dtype for name in shapes}
        rounded = {dtype for dtype in self._published_dtypes.values() if not _holds(self._operations.dtype, dtype)}
        if rounded:
            _LOG.warning(
                "%s holds %s weights, which this engine rounds to %s: its fingerprint differs from the folder's",
                folder, ", ".join(sorted(map(str, rounded))), self._operations.dtype,
            )  # fmt: skip

    def fingerprint(self) -> str:
        """Of the matrices that sample, unpacked, each in the type it was published in: equal to the folder's, unless a
        published type has more bits than the engine's. Raises `EngineError` where a tied head is not the embedding."""
        return tensors_fingerprint((name, self._as_published(name, tensor)) for name, tensor in self._tensors())

    def _layer(self, checkpoint: Checkpoint, layer: int) -> LayerWeights:
        def tensor(name: str, kind: str = "weight") -> Tensor:
            return checkpoint.tensor(f"model.layers.{layer}.{name}.{kind}")

        def vector(name: str) -> Tensor:
            return tensor(name).to(torch.float32, copy=True)

        projections = [f"self_attn.{part}_proj" for part in ("q", "k", "v")]
        biased, normed = self._shape.has_qkv_bias, self._shape.has_head_norms
        return LayerWeights(
            attention_norm=vector("input_layernorm"),
            qkv=self._operations.pack(torch.cat([tensor(name) for name in projections])),
            qkv_bias=torch.cat([tensor(name, "bias") for name in projections]).float() if biased else None,
            query_norm=vector("self_attn.q_norm") if normed else None,
            key_norm=vector("self_attn.k_norm") if normed else None,
            out=self._operations.pack(tensor("self_attn.o_proj")),
            mlp_norm=vector("post_attention_layernorm"),
            gate_up=self._operations.pack_gated(tensor("mlp.gate_proj"), tensor("mlp.up_proj")),
            down=self._operations.pack(tensor("mlp.down_proj")),
        )

    def _tensors(self) -> Iterator[tuple[str, Tensor]]:
        unpack = self._operations.unpack
        head = unpack(self.head)
        if self._shape.tied and not torch.equal(head, self.embedding):
            raise EngineError("the engine's embedding and its head, which are tied, hold different weights")
        if not self._shape.tied:
            yield self._shape.head_name, head
        yield "model.embed_tokens.weight", self.embedding
        yield "model.norm.weight", self.norm
        for number, layer in enumerate(self.layers):
            prefix = f"model.layers.{number}."
            query, key, value = unpack(layer.qkv).split(self._shape.qkv_sizes)
            gate, up = self._operations.unpack_gated(layer.gate_up)
            yield prefix + "input_layernorm.weight", layer.attention_norm
            yield prefix + "self_attn.q_proj.weight", query
            yield prefix + "self_attn.k_proj.weight", key
            yield prefix + "self_attn.v_proj.weight", value
            if layer.qkv_bias is not None:
                for part, bias in zip("qkv", layer.qkv_bias.split(self._shape.qkv_sizes), strict=True):
                    yield f"{prefix}self_attn.{part}_proj.bias", bias
            for part, norm in (("q", layer.query_norm), ("k", layer.key_norm)):
                if norm is not None:
                    yield f"{prefix}self_attn.{part}_norm.weight", norm
            yield prefix + "self_attn.o_proj.weight", unpack(layer.out)
            yield prefix + "post_attention_layernorm.weight", layer.mlp_norm
            yield prefix + "mlp.gate_proj.weight", gate
            yield prefix + "mlp.up_proj.weight", up
            yield prefix + "mlp.down_proj.weight", unpack(layer.down)

    def _as_published(self, name: str, tensor: Tensor) -> Tensor:
        published = self._published_dtypes[name]
        return tensor.to(published) if _holds(tensor.dtype, published) else tensor


def _holds(held: torch.dtype, published: torch.dtype) -> bool:
    """Whether every value of `published` is a value of `held`."""
    return torch.promote_types(held, published) == held
