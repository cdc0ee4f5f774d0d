"""Builders that the tests of losses, learner and their laws share: a tiny model, samples, a trainer that only looks."""

from __future__ import annotations

import dataclasses
import multiprocessing
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from posttrain.core.protocols import StageSpec
from posttrain.core.types import Sample
from posttrain.learn.layout import LayoutOptions
from posttrain.learn.trainer import Trainer

VOCABULARY = 40
POLICY_GRADIENT = {"name": "clipped_policy_gradient"}
SUPERVISED = {"name": "supervised"}
KL_PENALTY = {"name": "kl_penalty", "coefficient": 0.1}
ENTROPY_BONUS = {"name": "entropy_bonus", "coefficient": 0.1}
VALUE = {"name": "value", "coefficient": 0.5}


def write_tiny_model(folder: Path, **config: Any) -> Path:
    """A random two-layer Llama in float64, the same for the same configuration."""
    from transformers import LlamaConfig, LlamaForCausalLM

    fields: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
        "tie_word_embeddings": True,
        "initializer_range": 0.3,
    }
    with torch.random.fork_rng():
        torch.manual_seed(0)
        LlamaForCausalLM(LlamaConfig(**{**fields, **config})).double().save_pretrained(folder)
    return folder


def norm_in_its_own_dtype(module: Any, hidden: torch.Tensor) -> torch.Tensor:
    """RMSNorm; transformers' own rounds to float32 on the way, which would hide errors below 1e-7."""
    scale = torch.rsqrt(hidden.square().mean(-1, keepdim=True) + module.variance_epsilon)
    scaled: torch.Tensor = module.weight * hidden * scale
    return scaled


def sample(
    prefix: Sequence[int],
    completion: Sequence[int],
    *,
    name: str = "s",
    group: str = "",
    trainable: Sequence[bool] = (),
    seed: int = 0,
    **fields: Any,
) -> Sample:
    """`completion` is trainable, or where `trainable` says so; other fields are random but for the `fields` given."""
    draw = np.random.default_rng([seed, len(prefix), *map(int, completion)])
    tokens = np.asarray([*prefix, *completion], np.int32)
    length = len(tokens)
    mask = np.zeros(length, np.bool_)
    mask[len(prefix) :] = trainable if len(trainable) else True
    default: dict[str, Any] = {
        "behavior_logprobs": -draw.uniform(2.0, 5.0, length).astype(np.float32),
        "advantages": draw.normal(size=length).astype(np.float32),
        "loss_weights": draw.uniform(0.5, 2.0, length).astype(np.float32),
        "versions": np.where(mask, 0, -1).astype(np.int32),
        "reference_logprobs": -draw.uniform(2.0, 5.0, length).astype(np.float32),
    }
    return Sample(name, 0, group or name, "toy", tokens, mask, **{**default, **fields})


def some_samples() -> list[Sample]:
    """Two groups with shared prompts of different lengths, a lone sample, one with several turns, and one of a group
    whose prompt differs from its sibling's."""
    draw = np.random.default_rng(7)

    def tokens(count: int) -> list[int]:
        return [int(token) for token in draw.integers(0, VOCABULARY, count)]

    samples = []
    for group, (prompt, lengths) in {"a": (6, (4, 1, 7, 3)), "b": (3, (5, 5)), "c": (4, (6,))}.items():
        prefix = tokens(prompt)
        samples += [sample(prefix, tokens(n), name=f"{group}{i}", group=group) for i, n in enumerate(lengths)]
    turns = [True, True, False, False, True, False, True, True, False]
    samples.append(sample(tokens(5), tokens(9), name="d0", group="d", trainable=turns, temperature=0.7))
    samples.append(sample(tokens(2), tokens(3), name="a9", group="a"))
    return samples


def judged(samples: Sequence[Sample]) -> list[Sample]:
    """The same with a critic's old values and returns, both random."""
    found = []
    for number, s in enumerate(samples):
        draw = np.random.default_rng([number, len(s.tokens)])
        values, returns = draw.normal(size=(2, len(s.tokens))).astype(np.float32)
        found.append(replace(s, values=values, returns=returns))
    return found


def stage_of(*losses: dict[str, Any], keep_reference: bool = False, **options: Any) -> StageSpec:
    """A stage of 100 steps whose losses are added up; `options` are the optimizer's."""
    return StageSpec(list(losses), options, total_steps=100, keep_reference=keep_reference)


def watching_trainer(folder: Path, *losses: dict[str, Any], dtype: str = "float64", **options: Any) -> Trainer:
    """Takes steps that change nothing (learning rate 0), so that its gradient can be looked at again and again."""
    trainer = Trainer(folder, dtype=dtype, **options)
    trainer.begin_stage(stage_of(*losses, learning_rate=0.0, max_grad_norm=0.0))
    speak(trainer)
    return trainer


def speak(trainer: Trainer) -> None:
    """A critic, where there is one, says other things than 0, as it does once it is trained."""
    critic = trainer._policy.critic
    if critic is not None:
        critic.weight.data.copy_(torch.linspace(-0.5, 0.7, critic.weight.numel())[None])


def gradient(trainer: Trainer, samples: Sequence[Sample], layout: LayoutOptions | None = None) -> torch.Tensor:
    """`[P]` of one step over `samples`, cut as `layout` says."""
    if layout is not None:
        trainer._layout = layout
    trainer.step(samples)
    return trainer._memory.gradients[0].clone()


def weights(trainer: Trainer) -> torch.Tensor:
    return trainer._memory.weights.clone()


def replace(sample_: Sample, **fields: Any) -> Sample:
    return dataclasses.replace(sample_, **fields)


def run_ranks(world_size: int, work: Callable[[int, str], Any]) -> list[Any]:
    """`work(rank, rendezvous)` in a process for each rank; what each returned, or the exception it raised.

    The processes are forked, so that they have what the test has patched.
    """
    context = multiprocessing.get_context("fork")
    pipes = [context.Pipe(duplex=False) for _ in range(world_size)]
    with tempfile.TemporaryDirectory(prefix="ranks-") as rendezvous:
        processes = [
            context.Process(target=_send_outcome, args=(sender, work, rank, rendezvous))
            for rank, (_, sender) in enumerate(pipes)
        ]
        for process, (_, sender) in zip(processes, pipes, strict=True):
            process.start()
            sender.close()
        outcomes = [_outcome(receiver) for receiver, _ in pipes]
        for process in processes:
            process.join()
        assert list(Path(rendezvous).iterdir()) == []
    return outcomes


def _send_outcome(sender: Any, work: Callable[[int, str], Any], rank: int, rendezvous: str) -> None:
    try:
        outcome = work(rank, rendezvous)
    except Exception as error:
        outcome = error
    sender.send(outcome)


def _outcome(receiver: Any) -> Any:
    try:
        return receiver.recv()
    except EOFError:
        return None
