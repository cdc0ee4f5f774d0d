"""Which models can be trained, and that the others are refused before anything goes wrong in silence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.learn.parts import VOCABULARY, write_tiny_model

from posttrain.core.errors import ConfigError, ModelError
from posttrain.learn.policy import Policy, compute_dtype


def write(folder: Path, config: Any, model_type: Any) -> Path:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model_type(config).save_pretrained(folder)
    return folder


SMALL: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
}


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_llama_is_accepted_in_every_dtype(tiny_model: Path, dtype: str) -> None:
    policy = Policy(tiny_model, compute_dtype(dtype))
    assert policy.max_context == 128
    assert not policy.model.training
    assert {parameter.dtype for parameter in policy.model.parameters()} == {compute_dtype(dtype)}


def test_another_dense_architecture_is_accepted(tmp_path: Path) -> None:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    Policy(write(tmp_path, Qwen2Config(**SMALL), Qwen2ForCausalLM), torch.float32)


def test_model_whose_head_caps_its_logits_is_refused(tmp_path: Path) -> None:
    from transformers import GraniteConfig, GraniteForCausalLM

    folder = write(tmp_path, GraniteConfig(**SMALL, logits_scaling=4.0), GraniteForCausalLM)
    with pytest.raises(ModelError, match="logits that are hidden states times the head's weights; granite"):
        Policy(folder, torch.float32)


def test_model_that_ignores_restarted_positions_is_refused(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Policy.hidden_states

    def ignoring(self: Policy, tokens: torch.Tensor, positions: torch.Tensor, mask: Any) -> torch.Tensor:
        return plain(self, tokens, torch.arange(tokens.shape[1])[None], mask)

    monkeypatch.setattr(Policy, "hidden_states", ignoring)
    with pytest.raises(ModelError, match="attention masks and positions of packed rows; llama"):
        Policy(tiny_model, torch.float32)


def test_model_that_ignores_the_mask_is_refused(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Policy.hidden_states
    monkeypatch.setattr(
        Policy, "hidden_states", lambda self, tokens, positions, _: plain(self, tokens, positions, None)
    )
    with pytest.raises(ModelError, match="attention masks and positions of packed rows; llama"):
        Policy(tiny_model, torch.float32)


def test_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"it has no config.json"):
        Policy(tmp_path, torch.float32)


def test_folder_with_a_broken_model_is_refused(tmp_path: Path) -> None:
    write_tiny_model(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="cannot be loaded for training"):
        Policy(tmp_path, torch.float32)


def test_dtype_nobody_computes_in_is_refused() -> None:
    with pytest.raises(ConfigError, match="not in 'float16'"):
        compute_dtype("float16")


def test_loading_does_not_depend_on_the_global_random_state(tiny_model: Path) -> None:
    torch.manual_seed(1)
    first = Policy(tiny_model, torch.float32).model.state_dict()
    torch.manual_seed(2)
    second = Policy(tiny_model, torch.float32).model.state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
