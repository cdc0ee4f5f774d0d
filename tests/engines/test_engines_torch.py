from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from tests.engines.parts import (
    CONTEXT,
    VOCAB,
    generate,
    groups,
    prompt,
    request,
    save_model,
    tokens_of,
    trainer_logprobs,
)

from posttrain.core.errors import ConfigError, DeadlineExceededError, EngineError, ModelError, NonFiniteError
from posttrain.core.fingerprint import folder_fingerprint
from posttrain.core.processor import faster_dtype
from posttrain.core.protocols import PauseMode, RolloutEngine
from posttrain.core.registry import build
from posttrain.core.types import StopReason
from posttrain.engines.reference import ReferenceEngine
from posttrain.engines.torch import TorchEngine

Kernels = Literal["auto", "off"]


def exact(folder: Path, max_rows: int = 128) -> TorchEngine:
    return TorchEngine(folder, dtype="float32", max_rows=max_rows)


def test_it_is_a_rollout_engine_and_a_component(tied: Path) -> None:
    engine = build("engine", {"name": "torch", "model": str(tied), "max_rows": 4})
    assert isinstance(engine, RolloutEngine)
    capabilities = asyncio.run(engine.capabilities())
    assert (capabilities.name, capabilities.max_context, capabilities.dtype) == ("torch", CONTEXT, faster_dtype())
    assert capabilities.pause_modes == (PauseMode.DRAIN,)
    assert capabilities.shares_prompts


@pytest.mark.parametrize("model", ["tied", "untied", "qwen2", "qwen3", "stretched", "yarn"])
@pytest.mark.parametrize("max_rows", [3, 128])
def test_float32_agrees_with_the_reference_engine(model: str, max_rows: int, request: pytest.FixtureRequest) -> None:
    """Ragged prompts, shared and not, over page borders, sampled at three temperatures and greedily."""
    folder = request.getfixturevalue(model)
    requests = [
        *groups(4, 2, max_new_tokens=36, stop_tokens=(5,)),
        *groups(3, 1, max_new_tokens=9, temperature=0.0),
        *groups(7, 1, max_new_tokens=6, temperature=1.6),
    ]
    expected = generate(ReferenceEngine(folder), requests)
    found = generate(exact(folder, max_rows), requests)
    assert tokens_of(found) == tokens_of(expected)
    assert [one.stop for one in found] == [one.stop for one in expected]
    assert [one.request_id for one in found] == [one.request_id for one in requests]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-4)


@pytest.mark.parametrize("kernels", ["auto", "off"])
def test_bfloat16_logprobs_stay_near_float32_ones(kernels: Kernels, tied: Path) -> None:
    requests = groups(7, 4, max_new_tokens=40)
    found = generate(TorchEngine(tied, dtype="bfloat16", kernels=kernels), requests)
    expected = trainer_logprobs(tied, requests, found)
    differences = np.abs(np.concatenate([one.logprobs for one in found]) - np.concatenate(expected))
    assert len(differences) == 28 * 40
    assert differences.mean() < 0.03
    assert differences.max() < 0.4


@pytest.mark.parametrize("kernels", ["auto", "off"])
def test_the_same_call_gives_the_same_bits(kernels: Kernels, tied: Path) -> None:
    engine = TorchEngine(tied, dtype="bfloat16", max_rows=5, kernels=kernels)
    requests = groups(4, 3, max_new_tokens=20, stop_tokens=(7, 8, 9))
    first, second = generate(engine, requests), generate(engine, requests)
    assert tokens_of(first) == tokens_of(second)
    assert [one.logprobs.tolist() for one in first] == [one.logprobs.tolist() for one in second]


def test_each_end_has_its_reason(tied: Path) -> None:
    engine = exact(tied)
    free = generate(engine, [request(max_new_tokens=10)])[0]
    requests = [
        request("limit", max_new_tokens=10),
        request("stop", max_new_tokens=10, stop_tokens=(int(free.tokens[4]),)),
        request("stop at the limit", max_new_tokens=5, stop_tokens=(int(free.tokens[4]),)),
        request("context", prompt(CONTEXT - 4), max_new_tokens=10),
        request("limit and context together", prompt(CONTEXT - 4), max_new_tokens=4),
        request("full", prompt(CONTEXT), max_new_tokens=10),
        request("nothing wanted", max_new_tokens=0),
    ]
    found = {one.request_id: (one.stop, len(one.tokens)) for one in generate(engine, requests)}
    first = free.tokens.tolist().index(free.tokens[4]) + 1
    assert found == {
        "limit": (StopReason.MAX_NEW_TOKENS, 10),
        "stop": (StopReason.STOP, first),
        "stop at the limit": (StopReason.STOP, first),
        "context": (StopReason.MAX_CONTEXT, 4),
        "limit and context together": (StopReason.MAX_NEW_TOKENS, 4),
        "full": (StopReason.MAX_CONTEXT, 0),
        "nothing wanted": (StopReason.MAX_NEW_TOKENS, 0),
    }


def test_no_request_is_no_generation(tied: Path) -> None:
    assert generate(exact(tied), []) == []


def test_time_runs_out_between_steps_and_the_next_call_is_whole(tied: Path) -> None:
    engine = exact(tied, max_rows=2)
    requests = groups(3, 2)
    expected = tokens_of(generate(engine, requests))
    with pytest.raises(DeadlineExceededError, match=r"of 0\.0 s \(0 of 6 requests finished\)"):
        generate(engine, requests, timeout_s=0.0)
    assert tokens_of(generate(engine, requests, timeout_s=600)) == expected


def test_a_paused_engine_refuses_requests_until_it_resumes(tied: Path) -> None:
    engine = exact(tied)
    asyncio.run(engine.pause(PauseMode.DRAIN))
    with pytest.raises(EngineError, match="paused"):
        generate(engine, [request()])
    asyncio.run(engine.resume())
    assert len(generate(engine, [request()])[0].tokens) == 8


@pytest.mark.parametrize("mode", [PauseMode.ABORT, PauseMode.KEEP])
def test_pausing_otherwise_than_by_draining_is_refused(mode: PauseMode, tied: Path) -> None:
    with pytest.raises(EngineError, match="drain"):
        asyncio.run(exact(tied).pause(mode))


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"tokens": prompt(0)}, "empty prompt"),
        ({"tokens": prompt(CONTEXT + 1)}, "97 tokens; the model's context is 96"),
        ({"tokens": np.array([1, VOCAB], dtype=np.int32)}, "token id 301; the vocabulary has ids 0 to 300"),
        ({"tokens": np.array([-1], dtype=np.int32)}, "token id -1"),
        ({"temperature": -1.0}, "temperature -1.0"),
        ({"temperature": float("nan")}, "temperature nan"),
        ({"max_new_tokens": -1}, "-1 tokens"),
    ],
)
def test_a_request_that_cannot_be_served_is_named(fields: Mapping[str, Any], sentence: str, tied: Path) -> None:
    with pytest.raises(EngineError, match=sentence):
        generate(exact(tied), [request("good"), request("bad", **fields)])


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"model_type": "gemma3"}, "model_type is 'gemma3'"),
        ({"attention_bias": True}, "attention_bias"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 8.0}}, "rope_type is 'dynamic'"),
        ({"rope_parameters": None, "rope_scaling": {"type": "longrope"}}, "rope_type is 'longrope'"),
        ({"model_type": "qwen2", "use_sliding_window": True}, "use_sliding_window"),
        ({"model_type": "qwen3", "layer_types": ["full_attention", "sliding_attention"]}, "layer_types"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
    ],
)
def test_what_it_would_compute_wrongly_is_refused(
    changes: Mapping[str, Any], sentence: str, tied: Path, tmp_path: Path
) -> None:
    config = json.loads((tied / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **changes}))
    with pytest.raises(ModelError, match=sentence) as error:
        TorchEngine(tmp_path)
    assert "it supports model_type llama, qwen2, qwen3" in str(error.value)


def test_a_rotation_without_its_numbers_is_refused(tied: Path, tmp_path: Path) -> None:
    config = json.loads((tied / "config.json").read_text())
    rope = {"rope_type": "llama3", "rope_theta": 100.0, "factor": 8.0}
    (tmp_path / "config.json").write_text(json.dumps({**config, "rope_parameters": rope}))
    with pytest.raises(ModelError, match=r"rotation of type llama3.*high_freq_factor"):
        TorchEngine(tmp_path)


@pytest.mark.parametrize("model", ["qwen2", "qwen3"])
def test_what_a_family_adds_is_published_and_fingerprinted(
    model: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    folder = request.getfixturevalue(model)
    engine = exact(folder)
    assert asyncio.run(engine.fingerprint()) == folder_fingerprint(folder)
    before = tokens_of(generate(engine, groups(4, 1)))
    options: dict[str, Any] = {"head_dim": 32, "tie_word_embeddings": False} if model == "qwen3" else {}
    other = save_model(tmp_path, model, seed=9, **options)
    asyncio.run(engine.publish(1, other))
    assert asyncio.run(engine.fingerprint()) == folder_fingerprint(other)
    assert tokens_of(generate(engine, groups(4, 1))) == tokens_of(generate(exact(other), groups(4, 1))) != before


def test_a_folder_that_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no config\.json"):
        TorchEngine(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelError, match="not JSON"):
        TorchEngine(tmp_path)


def test_a_folder_without_weights_is_refused(tied: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((tied / "config.json").read_text())
    with pytest.raises(EngineError, match="no safetensors file"):
        TorchEngine(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"nonsense")
    with pytest.raises(EngineError, match="cannot be read"):
        TorchEngine(tmp_path)


def test_an_engine_without_rows_is_refused(tied: Path) -> None:
    with pytest.raises(ConfigError, match="at least 1 row"):
        TorchEngine(tied, dtype="bfloat16", max_rows=0)


def test_older_configurations_name_their_stretching_differently(stretched: Path, tmp_path: Path) -> None:
    config = json.loads((stretched / "config.json").read_text())
    rope = config.pop("rope_parameters")
    config |= {"rope_theta": rope.pop("rope_theta"), "rope_scaling": {"type": rope.pop("rope_type"), **rope}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    for path in stretched.glob("*.safetensors"):
        (tmp_path / path.name).symlink_to(path)
    requests = groups(3, 1, max_new_tokens=40)
    assert tokens_of(generate(exact(tmp_path), requests)) == tokens_of(generate(exact(stretched), requests))


def test_older_configurations_name_their_rotation_differently(untied: Path, tmp_path: Path) -> None:
    config = json.loads((untied / "config.json").read_text())
    config["rope_theta"] = config.pop("rope_parameters")["rope_theta"]
    (tmp_path / "config.json").write_text(json.dumps({**config, "rope_scaling": None}))
    for path in untied.glob("*.safetensors"):
        (tmp_path / path.name).symlink_to(path)
    requests = groups(3, 1)
    assert tokens_of(generate(exact(tmp_path), requests)) == tokens_of(generate(exact(untied), requests))


@pytest.mark.parametrize("change", [{"intermediate_size": 128}, {"num_hidden_layers": 3}, {"num_hidden_layers": 1}])
def test_publish_of_another_model_is_refused_and_changes_nothing(
    change: Mapping[str, Any], tied: Path, tmp_path: Path
) -> None:
    engine = exact(tied)
    expected = tokens_of(generate(engine, groups(2, 1)))
    other = save_model(tmp_path, **change)
    with pytest.raises(EngineError, match="does not fit the model"):
        asyncio.run(engine.publish(1, other))
    found = generate(engine, groups(2, 1))
    assert tokens_of(found) == expected
    assert found[0].versions.tolist() == [0] * 8
    assert asyncio.run(engine.fingerprint()) == folder_fingerprint(tied)


def test_a_head_stored_beside_an_embedding_it_is_tied_to_is_not_read(tied: Path, tmp_path: Path) -> None:
    engine = exact(tied)
    asyncio.run(engine.publish(1, save_model(tmp_path, tie_word_embeddings=False, dtype=torch.bfloat16)))
    expected = tokens_of(generate(exact(tied), groups(2, 1)))
    assert tokens_of(generate(engine, groups(2, 1))) == expected
    assert asyncio.run(engine.fingerprint()) == folder_fingerprint(tied)


def test_weights_that_are_rounded_are_announced(untied: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine = TorchEngine(untied, dtype="bfloat16", kernels="off")
    assert "float32 weights, which this engine rounds to torch.bfloat16" in caplog.text
    assert asyncio.run(engine.fingerprint()) != folder_fingerprint(untied)


def test_weights_may_be_written_over_after_a_publish(tied: Path, tmp_path: Path) -> None:
    """The learner writes the next version into the same file while the engine samples."""
    for path in tied.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    engine = TorchEngine(tmp_path, kernels="off")
    expected = tokens_of(generate(engine, groups(2, 1)))
    weights = tmp_path / "model.safetensors"
    with weights.open("r+b") as file:
        file.write(bytes(weights.stat().st_size))
    assert tokens_of(generate(engine, groups(2, 1))) == expected
    assert asyncio.run(engine.fingerprint()) == folder_fingerprint(tied)


def test_weights_that_are_not_finite_are_an_error(tied: Path) -> None:
    engine = exact(tied)
    engine._model.weights.norm.fill_(torch.nan)
    with pytest.raises(NonFiniteError, match="not finite"):
        generate(engine, [request()])
