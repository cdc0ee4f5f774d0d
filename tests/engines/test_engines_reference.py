from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.engines.parts import generate, prompt, request, save_model, tokens_of

from posttrain.core.errors import EngineError, ModelError
from posttrain.core.fingerprint import folder_fingerprint
from posttrain.core.protocols import RolloutEngine
from posttrain.core.types import StopReason
from posttrain.engines.reference import ReferenceEngine


def test_it_is_a_rollout_engine(tied: Path) -> None:
    engine = ReferenceEngine(tied)
    assert isinstance(engine, RolloutEngine)
    capabilities = asyncio.run(engine.capabilities())
    assert (capabilities.name, capabilities.dtype, capabilities.shares_prompts) == ("reference", "float32", False)


@pytest.mark.parametrize("model", ["tied", "untied"])
def test_fingerprint_is_the_folders(model: str, request: pytest.FixtureRequest) -> None:
    folder = request.getfixturevalue(model)
    assert asyncio.run(ReferenceEngine(folder).fingerprint()) == folder_fingerprint(folder)


def test_publish_replaces_the_weights_and_stamps_the_version(tied: Path, updated: Path) -> None:
    engine = ReferenceEngine(tied)
    before = generate(engine, [request(max_new_tokens=12)])
    asyncio.run(engine.publish(3, updated))
    after = generate(engine, [request(max_new_tokens=12)])
    assert (
        tokens_of(before)
        != tokens_of(after)
        == tokens_of(generate(ReferenceEngine(updated), [request(max_new_tokens=12)]))
    )
    assert before[0].versions.tolist() == [0] * 12
    assert after[0].versions.tolist() == [3] * 12


def test_publish_of_another_model_is_refused_and_changes_nothing(tied: Path, tmp_path: Path) -> None:
    engine = ReferenceEngine(tied)
    with pytest.raises(EngineError, match="does not fit the model"):
        asyncio.run(engine.publish(1, save_model(tmp_path, intermediate_size=128)))
    assert asyncio.run(engine.fingerprint()) == folder_fingerprint(tied)
    assert generate(engine, [request()])[0].versions.tolist() == [0] * 8


def test_greedy_is_the_argmax_of_transformers_forward(untied: Path) -> None:
    from transformers import AutoModelForCausalLM

    generation = generate(ReferenceEngine(untied), [request(max_new_tokens=10, temperature=0.0)])[0]
    tokens = torch.from_numpy(np.concatenate([prompt(5), generation.tokens]).astype(np.int64))
    with torch.no_grad():
        logits = AutoModelForCausalLM.from_pretrained(untied)(tokens[None]).logits[0, 4:-1]
    assert generation.tokens.tolist() == logits.argmax(1).tolist()
    assert generation.stop is StopReason.MAX_NEW_TOKENS


def test_a_folder_without_a_configuration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no config\.json"):
        ReferenceEngine(tmp_path)
