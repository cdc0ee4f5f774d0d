"""Tiny random models and requests to them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from posttrain.core.protocols import GenerateRequest, Generation, RolloutEngine

VOCAB = 301
CONTEXT = 96
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 100.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
"""The rotation of Llama 3.1, small."""


def save_model(
    folder: Path, family: str = "llama", seed: int = 0, dtype: torch.dtype = torch.float32, **options: Any
) -> Path:
    """Weights are large enough for distributions that are far from uniform, and no norm or bias is left at 1 or 0."""
    from transformers import AutoConfig, AutoModelForCausalLM

    settings = {
        "vocab_size": VOCAB,
        "hidden_size": 96,
        "intermediate_size": 160,
        "num_hidden_layers": 2,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": CONTEXT,
        "initializer_range": 0.15,
        "tie_word_embeddings": True,
    }
    torch.manual_seed(seed)
    model: Any = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **{**settings, **options}))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.uniform_(0.5, 1.5)
            if "bias" in name:
                parameter.uniform_(-1.0, 1.0)
    model.to(dtype=dtype).save_pretrained(folder)
    return folder


def prompt(length: int, seed: int = 0) -> np.ndarray[Any, np.dtype[np.int32]]:
    return np.random.default_rng(seed).integers(0, VOCAB, length).astype(np.int32)


def request(
    name: str = "r", tokens: Any = None, max_new_tokens: int = 8, seed: int = 0, **fields: Any
) -> GenerateRequest:
    return GenerateRequest(name, prompt(5) if tokens is None else tokens, max_new_tokens, seed, **fields)


def groups(num_prompts: int, siblings: int, max_new_tokens: int = 8, **fields: Any) -> list[GenerateRequest]:
    """Ragged prompts, some of them longer than a page; every request has a seed of its own."""
    lengths = [3, 40, 17, 32, 33, 1, 9][:num_prompts]
    return [
        request(
            f"{group}/{sibling}",
            prompt(length, seed=group),
            max_new_tokens,
            100 * group + sibling,
            group=str(group),
            **fields,
        )
        for group, length in enumerate(lengths)
        for sibling in range(siblings)
    ]


def generate(
    engine: RolloutEngine, requests: Sequence[GenerateRequest], timeout_s: float | None = None
) -> list[Generation]:
    return asyncio.run(engine.generate(requests, timeout_s=timeout_s))


def tokens_of(generations: Sequence[Generation]) -> list[list[int]]:
    return [generation.tokens.tolist() for generation in generations]


def trainer_logprobs(folder: Path, requests: Sequence[GenerateRequest], generations: Sequence[Generation]) -> list[Any]:
    """Log-probs of sampled tokens by one float32 forward pass of transformers over each whole sequence, as a trainer
    would compute them: [N] for each generation."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    answers = []
    for one, generation in zip(requests, generations, strict=True):
        sequence = torch.from_numpy(np.concatenate([one.prompt, generation.tokens]).astype(np.int64))
        with torch.no_grad():
            logits = model(sequence[None]).logits[0, len(one.prompt) - 1 : -1]
        table = (logits / (one.temperature or 1.0)).log_softmax(dim=1)
        answers.append(table.gather(1, sequence[len(one.prompt) :, None])[:, 0].numpy())
    return answers
