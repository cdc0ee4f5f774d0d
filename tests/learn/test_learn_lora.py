"""Adapters: what is trained, what others see of it, and that it is LoRA."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.learn.parts import (
    KL_PENALTY,
    POLICY_GRADIENT,
    SUPERVISED,
    VALUE,
    judged,
    run_ranks,
    some_samples,
    stage_of,
    watching_trainer,
    weights,
    write_tiny_model,
)
from torch import Tensor
from torch.func import functional_call

from posttrain.core.errors import ConfigError, UserError
from posttrain.core.fingerprint import folder_fingerprint
from posttrain.core.protocols import StageSpec
from posttrain.core.types import Sample
from posttrain.engines.reference import ReferenceEngine
from posttrain.engines.torch import TorchEngine
from posttrain.learn.lora_config import LoraConfig
from posttrain.learn.policy import Policy
from posttrain.learn.trainer import Trainer

LORA = LoraConfig(rank=3, alpha=4.5)
LINEAR = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


def begun(folder: Path, dtype: str = "float32", *, lora: LoraConfig = LORA, steps: int = 0, **options: Any) -> Trainer:
    """A trainer with an adapter and, for the size of the tiny model, a high learning rate."""
    trainer = Trainer(folder, dtype=dtype, lora=lora, **options)
    trainer.begin_stage(stage_of(SUPERVISED, learning_rate=3e-2))
    for _ in range(steps):
        trainer.step(some_samples())
    return trainer


def adapters(trainer: Trainer) -> dict[str, Tensor]:
    return {name: view.clone() for name, view in trainer._parameters.views(trainer._memory.weights).items()}


def base(trainer: Trainer) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in trainer._policy.parameters().items()}


def speaking(trainer: Trainer) -> Trainer:
    """The adapter says something in every matrix, as it does once it is trained."""
    draw = torch.Generator().manual_seed(5)
    flat = trainer._memory.weights
    flat.copy_(torch.randn(flat.shape, generator=draw, dtype=flat.dtype) * 0.2)
    return trainer


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


# ── what is trained ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_adapters_alone_change(tiny_model: Path, dtype: str) -> None:
    trainer = begun(tiny_model, dtype)
    frozen, first = base(trainer), adapters(trainer)
    losses = [trainer.step(some_samples()).loss for _ in range(20)]
    assert losses[-1] < 0.8 * losses[0]
    assert same(base(trainer), frozen)
    assert all(not torch.equal(now, first[name]) for name, now in adapters(trainer).items())


def test_flat_vectors_hold_the_adapters_of_all_linear_layers_and_nothing_else(tiny_model: Path) -> None:
    trainer = begun(tiny_model, "bfloat16")
    names = {slot.name for slot in trainer._parameters.slots}
    assert len(names) == 2 * len(LINEAR) * 2
    assert {name.split(".")[4] for name in names} == LINEAR
    assert {name.split(".", 5)[5] for name in names} == {"lora_A.default.weight", "lora_B.default.weight"}
    held = {**trainer._memory.vectors(), "gradients": trainer._memory.gradients[0], "weights": weights(trainer)}
    assert {(len(flat), flat.dtype) for flat in held.values()} == {(trainer._parameters.num_elements, torch.float32)}


def test_targets_are_those_that_were_named(tiny_model: Path) -> None:
    trainer = begun(tiny_model, lora=LoraConfig(targets=["v_proj", "q_proj"]))
    assert {slot.name.split(".")[4] for slot in trainer._parameters.slots} == {"q_proj", "v_proj"}


def test_a_begins_as_a_function_of_the_seed_and_b_at_zero(tiny_model: Path) -> None:
    first, again, other = (adapters(begun(tiny_model, seed=seed)) for seed in (1, 1, 2))
    assert same(first, again)
    for name, tensor in first.items():
        if ".lora_B." in name:
            assert not tensor.any()
        else:
            assert tensor.abs().min() > 0
            assert not torch.equal(tensor, other[name])


def test_adapter_neither_reads_nor_moves_the_global_random_state(tiny_model: Path) -> None:
    torch.manual_seed(3)
    first, after = adapters(begun(tiny_model)), torch.rand(1)
    torch.manual_seed(3)
    assert torch.equal(after, torch.rand(1))
    assert same(first, adapters(begun(tiny_model)))


@pytest.mark.usefixtures("exact_norms")
@pytest.mark.parametrize("recompute", [False, True])
def test_gradient_is_that_of_lora_written_by_hand(tmp_path: Path, recompute: bool) -> None:
    """W + alpha / rank · B · A in a plain model, one sample at a time, in float64."""
    folder = write_tiny_model(tmp_path)
    trainer = speaking(watching_trainer(folder, SUPERVISED, lora=LORA, recompute=recompute))
    own = {name: view.clone().requires_grad_() for name, view in adapters(trainer).items()}
    trainer.step(some_samples())
    found = trainer._parameters.views(trainer._memory.gradients[0])
    expected = torch.autograd.grad(_loss_by_hand(folder, own), list(own.values()))
    for name, gradient in zip(own, expected, strict=True):
        assert gradient.abs().max() > 1e-6
        assert torch.allclose(found[name], gradient, rtol=0, atol=1e-11), name


def _loss_by_hand(folder: Path, own: dict[str, Tensor]) -> Tensor:
    from transformers import AutoModelForCausalLM

    plain: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    tensors = {name: parameter.detach() for name, parameter in plain.named_parameters()}
    for name, a in own.items():
        if ".lora_A." in name:
            b = own[name.replace(".lora_A.", ".lora_B.")]
            target = name.replace(".lora_A.default", "")
            tensors[target] = tensors[target] + 1.5 * b @ a
    samples = some_samples()
    total = sum((_weighted_likelihood(plain, tensors, s) for s in samples), torch.zeros((), dtype=torch.float64))
    return -total / math.fsum(s.weight for s in samples)


def _weighted_likelihood(plain: Any, tensors: dict[str, Tensor], sample: Sample) -> Tensor:
    ids = torch.from_numpy(sample.tokens.astype(np.int64))
    logits = functional_call(plain, tensors, kwargs={"input_ids": ids[None], "use_cache": False}).logits[0]
    table = torch.log_softmax(logits[:-1] / float(np.float32(sample.temperature)), dim=-1)
    logprobs = table.gather(1, ids[1:, None])[:, 0]
    weight = torch.from_numpy(sample.loss_weights * sample.trainable).double()[1:]
    return (weight * logprobs).sum()


@pytest.mark.usefixtures("exact_norms")
def test_two_ranks_are_one_rank_and_see_the_same_frozen_weights(tiny_model: Path, tmp_path: Path) -> None:
    def train(rank: int, world_size: int, rendezvous: str) -> tuple[Any, str, float]:
        trainer = begun(tiny_model, "float64", steps=3, rank=rank, world_size=world_size, rendezvous=rendezvous)
        found = weights(trainer).numpy()
        fingerprint = trainer.export(tmp_path / f"out-{world_size}-{rank}")
        frozen = next(iter(trainer._policy.parameters().values()))
        trainer._peers.gather("compare")
        if rank == 0:
            frozen.view(-1)[0] = 123.0
        trainer._peers.gather("see")
        return found, fingerprint, float(frozen.view(-1)[0])

    alone, _, _ = train(0, 1, "")
    (first, fingerprint, _), (second, other, seen) = run_ranks(2, lambda rank, at: train(rank, 2, at))
    assert np.array_equal(first, second)
    assert fingerprint == other
    assert np.abs(first - alone).max() < 1e-10
    assert seen == 123.0


def test_adapter_is_float32_where_the_model_is_bfloat16(tiny_model: Path) -> None:
    model = Policy(tiny_model, torch.bfloat16, lora=LORA).model
    kinds = {(parameter.requires_grad, parameter.dtype) for parameter in model.parameters()}
    assert kinds == {(True, torch.float32), (False, torch.bfloat16)}


# ── what others see ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize("tied", [True, False])
def test_untrained_adapter_publishes_the_base_bit_for_bit(tmp_path: Path, dtype: str, tied: bool) -> None:
    source = write_tiny_model(tmp_path / "source", tie_word_embeddings=tied)
    plain = Trainer(source, dtype=dtype)
    assert begun(source, dtype).export(tmp_path / "out") == plain.export(tmp_path / "plain")
    assert same(load_file(tmp_path / "out" / "model.safetensors"), load_file(tmp_path / "plain" / "model.safetensors"))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_merged_export_is_the_same_policy_bit_for_bit(tiny_model: Path, tmp_path: Path, dtype: str) -> None:
    trainer = begun(tiny_model, dtype, steps=5)
    assert trainer.export(tmp_path) == folder_fingerprint(tmp_path)
    before = Trainer(tiny_model, dtype=dtype).logprobs(some_samples())
    merged = Trainer(tmp_path, dtype=dtype).logprobs(some_samples())
    for old, ours, theirs in zip(before, trainer.logprobs(some_samples()), merged, strict=True):
        assert np.array_equal(ours, theirs)
        assert np.abs(ours - old).max() > 0.1


def test_layer_with_a_bias_computes_as_the_merged_one(tmp_path: Path) -> None:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    sizes: dict[str, Any] = {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
    }
    config: Any = Qwen2Config(vocab_size=40, num_hidden_layers=1, **sizes)
    model: Any = Qwen2ForCausalLM(config)
    torch.nn.init.normal_(model.model.layers[0].self_attn.q_proj.bias)
    model.save_pretrained(tmp_path / "base")
    trainer = begun(tmp_path / "base", steps=2)
    trainer.export(tmp_path / "merged")
    merged = Trainer(tmp_path / "merged", dtype="float32").logprobs(some_samples())
    assert all(np.array_equal(a, b) for a, b in zip(trainer.logprobs(some_samples()), merged, strict=True))


def test_merging_is_computed_in_float32_and_rounded_once(tiny_model: Path, tmp_path: Path) -> None:
    trainer = speaking(begun(tiny_model, "bfloat16"))
    trainer.export(tmp_path)
    own, frozen, merged = adapters(trainer), base(trainer), load_file(tmp_path / "model.safetensors")
    assert merged.keys() == frozen.keys()
    for name, tensor in merged.items():
        stem = name.removesuffix(".weight")
        if stem.rpartition(".")[2] in LINEAR:
            delta = 1.5 * (own[f"{stem}.lora_B.default.weight"] @ own[f"{stem}.lora_A.default.weight"])
            assert torch.equal(tensor, (frozen[name].float() + delta).bfloat16())
        else:
            assert torch.equal(tensor, frozen[name])


def test_base_is_as_it_was_after_an_export(tiny_model: Path, tmp_path: Path) -> None:
    trainer = begun(tiny_model, steps=2)
    frozen, before = base(trainer), trainer.logprobs(some_samples())
    first, second = trainer.export(tmp_path), trainer.export(tmp_path)
    assert first == second
    assert same(base(trainer), frozen)
    assert all(np.array_equal(a, b) for a, b in zip(before, trainer.logprobs(some_samples()), strict=True))


@pytest.mark.parametrize("engine", [TorchEngine, ReferenceEngine])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_engine_holds_what_was_published(tiny_model: Path, tmp_path: Path, engine: Any, dtype: str) -> None:
    trainer = begun(tiny_model, dtype)
    first = trainer.export(tmp_path)
    sampling = engine(tmp_path, dtype=dtype)
    assert asyncio.run(sampling.fingerprint()) == first
    trainer.step(some_samples())
    second = trainer.export(tmp_path)
    asyncio.run(sampling.publish(1, tmp_path))
    assert asyncio.run(sampling.fingerprint()) == second != first


def test_peft_loads_the_adapter_onto_the_base(tiny_model: Path, tmp_path: Path) -> None:
    from peft import AutoPeftModelForCausalLM, PeftModel
    from transformers import AutoModelForCausalLM

    trainer = begun(tiny_model, lora=LoraConfig(rank=3, alpha=4.5, targets=["up_proj", "q_proj"]), steps=5)
    trainer.export(tmp_path / "model")
    trainer.export_adapter(tmp_path / "adapter")
    plain: Any = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    ids = torch.tensor([[1, 5, 9, 2]])
    with torch.no_grad():
        before = plain(ids).logits
        merged = AutoModelForCausalLM.from_pretrained(tmp_path / "model")(ids).logits
        adapted = PeftModel.from_pretrained(plain, str(tmp_path / "adapter"))(ids).logits
        named: Any = AutoPeftModelForCausalLM.from_pretrained(str(tmp_path / "adapter"), dtype=torch.float32)
        assert torch.equal(named(ids).logits, adapted)
    assert torch.allclose(adapted, merged, rtol=0, atol=1e-5)
    assert (adapted - before).abs().max() > 0.1
    named.save_pretrained(tmp_path / "again")
    ours, theirs = (load_file(tmp_path / folder / "adapter_model.safetensors") for folder in ("adapter", "again"))
    assert same(ours, theirs)


# ── a trainer's life ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_resumed_adapter_goes_on_bit_for_bit(tiny_model: Path, tmp_path: Path, dtype: str) -> None:
    whole = begun(tiny_model, dtype, steps=2)
    whole.save(tmp_path / "at_2")
    resumed = Trainer(tiny_model, dtype=dtype, lora=LORA, seed=9)
    resumed.load(tmp_path / "at_2")
    for trainer in (whole, resumed):
        for _ in range(2):
            trainer.step(some_samples())
    assert all(torch.equal(flat, resumed._memory.vectors()[name]) for name, flat in whole._memory.vectors().items())
    assert whole.export(tmp_path / "whole") == resumed.export(tmp_path / "resumed")


def test_checkpoint_of_an_adapter_is_refused_beside_other_frozen_weights(tiny_model: Path, tmp_path: Path) -> None:
    begun(tiny_model, steps=1).save(tmp_path / "checkpoint")
    write_tiny_model(tmp_path / "other", initializer_range=0.2)
    with pytest.raises(ConfigError, match="not saved beside the weights that are frozen here"):
        begun(tmp_path / "other").load(tmp_path / "checkpoint")
    with pytest.raises(ConfigError, match="not saved beside the weights that are frozen here"):
        Trainer(tiny_model, dtype="float32").load(tmp_path / "checkpoint")


def test_next_stage_goes_on_from_the_adapter_and_compares_with_it(tiny_model: Path) -> None:
    trainer = begun(tiny_model, steps=3)
    trained = adapters(trainer)
    trainer.begin_stage(stage_of(POLICY_GRADIENT, KL_PENALTY, keep_reference=True, learning_rate=3e-2))
    assert same(adapters(trainer), trained)
    begin = trainer.logprobs(some_samples())
    trainer.step(some_samples())
    now, kept = trainer.logprobs(some_samples()), trainer.logprobs(some_samples(), reference=True)
    for before, policy, reference in zip(begin, now, kept, strict=True):
        assert np.array_equal(before, reference)
        assert not np.array_equal(policy, reference)


def test_critic_is_trained_beside_the_adapter_and_is_in_no_export(tiny_model: Path, tmp_path: Path) -> None:
    trainer = Trainer(tiny_model, dtype="bfloat16", lora=LORA, critic=True)
    trainer.begin_stage(StageSpec([POLICY_GRADIENT, VALUE], {"learning_rate": 1e-2}, total_steps=9))
    errors = [trainer.step(judged(some_samples())).values["value_error"] for _ in range(9)]
    assert errors[-1] < errors[0]
    assert all(np.abs(row).max() > 0 for row in trainer.values(some_samples()))
    trainer.export(tmp_path / "model")
    trainer.export_adapter(tmp_path / "adapter")
    for file in tmp_path.rglob("*.safetensors"):
        assert not any("critic" in name for name in load_file(file)), file


# ── refusals ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_target_that_the_model_lacks_is_refused_with_the_closest(tiny_model: Path) -> None:
    with pytest.raises(ConfigError, match="no target 'q_porj'; did you mean 'q_proj'"):
        Trainer(tiny_model, dtype="float32", lora=LoraConfig(targets=["q_porj"]))


@pytest.mark.parametrize("tied", [True, False])
def test_head_is_no_target(tmp_path: Path, tied: bool) -> None:
    write_tiny_model(tmp_path, tie_word_embeddings=tied)
    with pytest.raises(ConfigError, match="no target 'lm_head'"):
        Trainer(tmp_path, dtype="float32", lora=LoraConfig(targets=["lm_head"]))


def test_model_without_linear_layers_is_refused(tmp_path: Path) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    config: Any = GPT2Config(vocab_size=40, n_embd=16, n_layer=1, n_head=2, n_positions=32)
    GPT2LMHeadModel(config).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"gpt2 in .* has no linear layer beside its head"):
        Trainer(tmp_path, dtype="float32", lora=LORA)


def test_there_is_no_adapter_to_export_where_all_weights_are_trained(tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no adapter to export"):
        Trainer(tiny_model, dtype="float32").export_adapter(tmp_path)
