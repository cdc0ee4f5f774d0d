"""`seedling`: a Llama small enough to train from nothing on two CPU cores; here its architecture and tokenizer.

`create` writes fresh weights as a Hugging Face folder, the same bytes for the same seed. What the model can do comes
from pre-training, which is not here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from posttrain.models.seedling_vocabulary import CONTROL_TOKENS, END, PAD, word_tokens

HIDDEN = 128
LAYERS = 4
HEADS = 4
KV_HEADS = 4
HEAD_DIM = HIDDEN // HEADS
INTERMEDIATE = 352
MAX_CONTEXT = 1024
REVISION = 2
"""To be raised with any change of what `create` writes."""

TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def create(folder: Path, seed: int) -> None:
    """Write the untrained model into `folder`, which must exist: float32 weights, configuration, tokenizer, template.

    Needs neither torch nor transformers.
    """
    tokenizer = build_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    _write_json(folder / "tokenizer_config.json", _tokenizer_config())
    ids = {"bos_token_id": None, "eos_token_id": tokenizer.token_to_id(END), "pad_token_id": tokenizer.token_to_id(PAD)}
    _write_json(folder / "generation_config.json", ids)
    _write_json(folder / "config.json", {**_config(tokenizer.get_vocab_size()), **ids})
    weights = _weights(tokenizer.get_vocab_size(), seed)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def build_tokenizer() -> Tokenizer:
    """Whole words of the fixed list, else bytes (so digits one by one). Any text comes back from its ids unchanged."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    words = ["".join(piece for piece, _ in byte_level.pre_tokenize_str(word)) for word in word_tokens()]
    vocabulary = {token: number for number, token in enumerate([*CONTROL_TOKENS, *alphabet, *words])}
    # Without merges the model is a list of words: what is not in it as a whole is spelled in bytes.
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # splits as GPT-2 does
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in CONTROL_TOKENS])
    return tokenizer


def num_parameters() -> int:
    """Of the model, tied embedding counted once."""
    shapes = _shapes(build_tokenizer().get_vocab_size()).values()
    return sum(int(np.prod(shape)) for shape in shapes)


def _shapes(vocab_size: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocab_size, HIDDEN)}
    for layer in range(LAYERS):
        place = f"model.layers.{layer}"
        shapes |= {
            f"{place}.input_layernorm.weight": (HIDDEN,),
            f"{place}.self_attn.q_proj.weight": (HEADS * HEAD_DIM, HIDDEN),
            f"{place}.self_attn.k_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"{place}.self_attn.v_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"{place}.self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD_DIM),
            f"{place}.post_attention_layernorm.weight": (HIDDEN,),
            f"{place}.mlp.gate_proj.weight": (INTERMEDIATE, HIDDEN),
            f"{place}.mlp.up_proj.weight": (INTERMEDIATE, HIDDEN),
            f"{place}.mlp.down_proj.weight": (HIDDEN, INTERMEDIATE),
        }
    return {**shapes, "model.norm.weight": (HIDDEN,)}


def _weights(vocab_size: int, seed: int) -> dict[str, np.ndarray[Any, np.dtype[np.float32]]]:
    """Norms 1, matrices normal with 1/√fan-in; those that write to the residual stream smaller by √(2·layers)."""
    generator = np.random.Generator(np.random.PCG64(seed))
    weights = {}
    for name, shape in _shapes(vocab_size).items():
        if len(shape) == 1:
            weights[name] = np.ones(shape, dtype=np.float32)
            continue
        scale = 0.02 if "embed" in name else shape[1] ** -0.5
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            scale /= (2 * LAYERS) ** 0.5
        weights[name] = generator.standard_normal(shape, dtype=np.float32) * np.float32(scale)
    return weights


def _config(vocab_size: int) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocab_size,
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "mlp_bias": False,
        "max_position_embeddings": MAX_CONTEXT,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
        "initializer_range": 0.02,
        "tie_word_embeddings": True,
        "dtype": "float32",
        "use_cache": True,
    }


def _tokenizer_config() -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "pad_token": PAD,
        "model_max_length": MAX_CONTEXT,
        "clean_up_tokenization_spaces": False,
    }


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
