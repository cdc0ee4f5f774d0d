"""Every family that the embedded engine runs is trained and sampled by the same weights: engine and learner agree on
log-probs before and after a step, with prompts shared in a group on both sides."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.engines.parts import LLAMA3, generate, groups, save_model
from tests.learn.parts import sample

from posttrain.core.protocols import GenerateRequest, Generation, StageSpec
from posttrain.core.types import Sample
from posttrain.engines.torch import TorchEngine
from posttrain.learn.lora_config import LoraConfig
from posttrain.learn.trainer import Trainer

torch.set_num_threads(1)

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama 3.1": ("llama", {"rope_parameters": LLAMA3}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {"head_dim": 32, "tie_word_embeddings": False}),
}


@pytest.mark.parametrize("lora", [None, LoraConfig(rank=4)], ids=["all weights", "lora"])
@pytest.mark.parametrize("name", MODELS)
def test_engine_and_learner_agree_before_and_after_a_step(name: str, lora: LoraConfig | None, tmp_path: Path) -> None:
    family, options = MODELS[name]
    folder = save_model(tmp_path / "base", family, **options)
    engine = TorchEngine(folder, dtype="float32")
    trainer = Trainer(folder, "float32", lora=lora)
    trainer.begin_stage(StageSpec([{"name": "clipped_policy_gradient"}], {"learning_rate": 3e-2}, total_steps=1))
    requests = groups(4, 3, max_new_tokens=20)

    before = generate(engine, requests)
    samples = [sample_of(*pair) for pair in zip(requests, before, strict=True)]
    agree(trainer, samples)
    metrics = trainer.step(samples)
    assert metrics.grad_norm > 0.0

    published = trainer.export(tmp_path / "published")
    asyncio.run(engine.publish(1, tmp_path / "published"))
    assert asyncio.run(engine.fingerprint()) == published
    after = generate(engine, requests)
    agree(trainer, [sample_of(*pair) for pair in zip(requests, after, strict=True)])
    assert [one.tokens.tolist() for one in after] != [one.tokens.tolist() for one in before]


def sample_of(request: GenerateRequest, generation: Generation) -> Sample:
    logprobs = np.concatenate([np.zeros(len(request.prompt), np.float32), generation.logprobs])
    prompt, reply = request.prompt.tolist(), generation.tokens.tolist()
    return sample(prompt, reply, name=request.request_id, group=request.group, behavior_logprobs=logprobs)


def agree(trainer: Trainer, samples: list[Sample]) -> None:
    for one, logprobs in zip(samples, trainer.logprobs(samples), strict=True):
        np.testing.assert_allclose(logprobs, one.behavior_logprobs, atol=2e-4)
