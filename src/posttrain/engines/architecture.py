"""Which models the embedded engine runs: Llama, Qwen 2 and Qwen 3 decoders, read from a folder's `config.json`.

Qwen 2 adds biases to queries, keys and values; Qwen 3 normalises each head's queries and keys before they turn.

Whatever it would compute wrongly is refused when the folder is read, with a sentence that names what is supported.
It does not read weights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posttrain.core.errors import ModelError
from posttrain.engines.rotation import STRETCHED, Rotation, read_rotation, rope_type

FAMILIES = ("llama", "qwen2", "qwen3")
SUPPORTED = (
    f"model_type {', '.join(FAMILIES)}: SiLU, no biases but Qwen 2's, attention to the whole context, rotations that "
    f"are plain or of type {', '.join(STRETCHED)}, tied or untied head; the engine 'reference' runs what transformers "
    "runs"
)


@dataclass(frozen=True)
class LlamaShape:
    """Everything about a model that is not a weight."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    rotation: Rotation
    max_context: int
    tied: bool
    has_qkv_bias: bool = False
    """Qwen 2."""
    has_head_norms: bool = False
    """Qwen 3."""

    @property
    def query_size(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        return self.num_kv_heads * self.head_dim

    @property
    def qkv_sizes(self) -> tuple[int, int, int]:
        """Rows of the three projections, in the order in which they are packed as one."""
        return self.query_size, self.kv_size, self.kv_size

    @property
    def head_name(self) -> str:
        """The tensor that turns hidden states into logits."""
        return "model.embed_tokens.weight" if self.tied else "lm_head.weight"

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Name → shape of every weight in checkpoint form."""
        hidden, inner = self.hidden_size, self.intermediate_size
        shapes: dict[str, tuple[int, ...]] = {
            "model.embed_tokens.weight": (self.vocab_size, hidden),
            "model.norm.weight": (hidden,),
            self.head_name: (self.vocab_size, hidden),
        }
        for layer in range(self.num_layers):
            prefix = f"model.layers.{layer}."
            shapes |= {
                prefix + "input_layernorm.weight": (hidden,),
                prefix + "self_attn.q_proj.weight": (self.query_size, hidden),
                prefix + "self_attn.k_proj.weight": (self.kv_size, hidden),
                prefix + "self_attn.v_proj.weight": (self.kv_size, hidden),
                prefix + "self_attn.o_proj.weight": (hidden, self.query_size),
                prefix + "post_attention_layernorm.weight": (hidden,),
                prefix + "mlp.gate_proj.weight": (inner, hidden),
                prefix + "mlp.up_proj.weight": (inner, hidden),
                prefix + "mlp.down_proj.weight": (hidden, inner),
            }
            if self.has_qkv_bias:
                sizes = zip("qkv", self.qkv_sizes, strict=True)
                shapes |= {f"{prefix}self_attn.{part}_proj.bias": (size,) for part, size in sizes}
            if self.has_head_norms:
                shapes |= {f"{prefix}self_attn.{part}_norm.weight": (self.head_dim,) for part in ("q", "k")}
        return shapes


def read_shape(folder: Path) -> LlamaShape:
    """Raises `ModelError` where the folder has no configuration or one that this engine does not compute."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text())
    except FileNotFoundError:
        raise ModelError(f"{folder} is not a model folder: it has no config.json") from None
    except ValueError as error:
        raise ModelError(f"{path} is not JSON: {error}") from None
    _refuse_unsupported(folder, config)
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    return LlamaShape(
        vocab_size=config["vocab_size"],
        hidden_size=config["hidden_size"],
        intermediate_size=config["intermediate_size"],
        num_layers=config["num_hidden_layers"],
        num_heads=heads,
        num_kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=head_dim,
        norm_eps=config["rms_norm_eps"],
        rotation=read_rotation(folder, config, head_dim),
        max_context=config["max_position_embeddings"],
        tied=bool(config.get("tie_word_embeddings", False)),
        has_qkv_bias=config["model_type"] == "qwen2",
        has_head_norms=config["model_type"] == "qwen3",
    )


def _refuse_unsupported(folder: Path, config: Mapping[str, Any]) -> None:
    kinds_of_layers = set(config.get("layer_types") or ["full_attention"])
    wanted: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "model_type": (config.get("model_type"), FAMILIES),
        "hidden_act": (config.get("hidden_act", "silu"), ("silu",)),
        "attention_bias": (config.get("attention_bias", False), (False,)),
        "mlp_bias": (config.get("mlp_bias", False), (False,)),
        "use_sliding_window": (config.get("use_sliding_window", False), (False,)),
        "layer_types": (kinds_of_layers, ({"full_attention"},)),
        "rope_type": (rope_type(config), ("default", *STRETCHED)),
        "quantization_config": (config.get("quantization_config"), (None,)),
    }
    for name, (value, supported) in wanted.items():
        if value not in supported:
            raise ModelError(f"the engine 'torch' cannot run {folder}: {name} is {value!r}; it supports {SUPPORTED}")
