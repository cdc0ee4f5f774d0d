"""Which models the embedded engine runs: Llama-family decoders, read from a folder's `config.json`.

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

SUPPORTED = (
    "Llama-family models: model_type llama, SiLU, no biases, plain rotary embeddings, grouped or full attention, "
    "tied or untied head; the engine 'reference' runs what transformers runs"
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
    rope_theta: float
    max_context: int
    tied: bool

    @property
    def query_size(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        return self.num_kv_heads * self.head_dim

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
    rope = _rope(config)
    _refuse_unsupported(folder, config, rope)
    heads = config["num_attention_heads"]
    return LlamaShape(
        vocab_size=config["vocab_size"],
        hidden_size=config["hidden_size"],
        intermediate_size=config["intermediate_size"],
        num_layers=config["num_hidden_layers"],
        num_heads=heads,
        num_kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or config["hidden_size"] // heads,
        norm_eps=config["rms_norm_eps"],
        rope_theta=float(rope.get("rope_theta") or config.get("rope_theta") or 10_000.0),
        max_context=config["max_position_embeddings"],
        tied=bool(config.get("tie_word_embeddings", False)),
    )


def _rope(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Newer configurations keep theta and type together; older ones have `rope_theta` and an optional scaling."""
    return config.get("rope_parameters") or config.get("rope_scaling") or {}


def _refuse_unsupported(folder: Path, config: Mapping[str, Any], rope: Mapping[str, Any]) -> None:
    wanted = {
        "model_type": (config.get("model_type"), "llama"),
        "hidden_act": (config.get("hidden_act", "silu"), "silu"),
        "attention_bias": (config.get("attention_bias", False), False),
        "mlp_bias": (config.get("mlp_bias", False), False),
        "rope_type": (rope.get("rope_type", rope.get("type", "default")), "default"),
        "quantization_config": (config.get("quantization_config"), None),
    }
    for name, (value, supported) in wanted.items():
        if value != supported:
            raise ModelError(f"the engine 'torch' cannot run {folder}: {name} is {value!r}; it supports {SUPPORTED}")
