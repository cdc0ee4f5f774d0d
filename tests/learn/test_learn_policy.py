"""Which models can be trained, and that the others are refused before anything goes wrong in silence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.learn.parts import VOCABULARY, some_samples, write_tiny_model

from posttrain.core.errors import ConfigError, ModelError
from posttrain.learn import layout as layouts
from posttrain.learn.layout import LayoutOptions
from posttrain.learn.pack import collate
from posttrain.learn.policy import Policy, compute_dtype, wide_dtype


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


def test_model_that_lets_nobody_replace_its_attention_is_refused(tmp_path: Path) -> None:
    from transformers import FalconConfig, FalconForCausalLM

    config = FalconConfig(vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=1, num_attention_heads=4)
    with pytest.raises(ModelError, match=r"falcon in .* lets nobody replace its attention"):
        Policy(write(tmp_path, config, FalconForCausalLM), torch.float32)


def test_model_that_ignores_the_parts_is_refused(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Policy.hidden_states

    def ignoring(self: Policy, tokens: torch.Tensor, positions: torch.Tensor, mask: Any) -> torch.Tensor:
        return plain(self, tokens, positions, mask if mask is not None and mask.is_floating_point() else None)

    monkeypatch.setattr(Policy, "hidden_states", ignoring)
    with pytest.raises(ModelError, match="attention in parts over packed rows; llama"):
        Policy(tiny_model, torch.float32)


def test_context_ends_with_the_sliding_window(tmp_path: Path) -> None:
    from transformers import MistralConfig, MistralForCausalLM

    folder = write(tmp_path, MistralConfig(**SMALL, sliding_window=24), MistralForCausalLM)
    assert Policy(folder, torch.float32).max_context == 24


@pytest.mark.parametrize("in_parts", [False, True], ids=["dense", "in_parts"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_recomputation_changes_no_bit_and_keeps_less(
    tiny_model: Path, dtype: str, in_parts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if in_parts:
        monkeypatch.setattr(layouts, "DENSE_POSITIONS", 0)
    plain, kept = logprobs_entropy_and_gradients(Policy(tiny_model, compute_dtype(dtype)))
    again, kept_by_recomputing = logprobs_entropy_and_gradients(
        Policy(tiny_model, compute_dtype(dtype), recompute=True)
    )
    assert all(torch.equal(one, other) for one, other in zip(plain, again, strict=True))
    assert kept_by_recomputing < kept / 2


def logprobs_entropy_and_gradients(policy: Policy) -> tuple[list[torch.Tensor], int]:
    """Of a packed row; and the number of elements that were kept for the backward pass."""
    ((micro_batch,),) = layouts.layout(some_samples(), 1, LayoutOptions(row_tokens=128))
    batch = collate(some_samples(), micro_batch, wide_dtype(policy.dtype))
    kept: list[int] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        logprobs, entropy = policy.logprobs(batch, with_entropy=True)
    assert entropy is not None
    torch.autograd.backward((logprobs + 0.1 * entropy).sum())
    return [logprobs, entropy, *(parameter.grad for parameter in policy.model.parameters())], sum(kept)


def test_model_without_layers_known_to_compute_again_is_refused(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transformers.modeling_layers.GradientCheckpointingLayer", torch.nn.Bilinear)
    with pytest.raises(ModelError, match="has no layers that are known to compute again alike"):
        Policy(tiny_model, torch.float32, recompute=True)


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
