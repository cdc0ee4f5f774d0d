"""L17, on the engine's side: after a publish the fingerprint of what samples is that of what was published; nothing of
older weights lingers; unchanged weights change nothing."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.engines.parts import generate, groups, save_model, tokens_of

from posttrain.core.errors import EngineError
from posttrain.core.fingerprint import folder_fingerprint
from posttrain.engines.checkpoint import tensors_fingerprint
from posttrain.engines.reference import ReferenceEngine
from posttrain.engines.scripted import ScriptedEngine
from posttrain.engines.torch import TorchEngine

torch.set_num_threads(1)

ENGINES: dict[str, Callable[[Path], TorchEngine | ReferenceEngine]] = {
    "kernels": TorchEngine,
    "plain": functools.partial(TorchEngine, kernels="off"),
    "float32": functools.partial(TorchEngine, dtype="float32"),
    "reference": ReferenceEngine,
}
CANARY = groups(3, 1, max_new_tokens=30, temperature=0.0)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("old"), dtype=torch.bfloat16)


@pytest.fixture(scope="module")
def new(old: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One small update away from `old`."""
    folder = tmp_path_factory.mktemp("new")
    tensors = load_file(old / "model.safetensors")
    torch.manual_seed(0)
    save_file(
        {name: tensor + 0.01 * torch.randn_like(tensor) for name, tensor in tensors.items()}, folder / "w.safetensors"
    )
    return folder


@pytest.mark.parametrize("name", ENGINES)
def test_the_fingerprint_after_a_publish_is_the_published_one(name: str, old: Path, new: Path) -> None:
    engine = ENGINES[name](old)
    assert asyncio.run(engine.fingerprint()) == folder_fingerprint(old)
    asyncio.run(engine.publish(1, new))
    trained = tensors_fingerprint(load_file(new / "w.safetensors").items())
    assert asyncio.run(engine.fingerprint()) == trained == folder_fingerprint(new)
    assert trained != folder_fingerprint(old)


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_after_a_publish_is_an_engine_that_began_with_those_weights(
    name: str, old: Path, new: Path, tmp_path: Path
) -> None:
    engine = ENGINES[name](old)
    requests = groups(3, 2, max_new_tokens=10)
    before = generate(engine, requests)
    asyncio.run(engine.publish(1, new))
    after = generate(engine, requests)
    (tmp_path / "config.json").write_text((old / "config.json").read_text())
    (tmp_path / "w.safetensors").symlink_to(new / "w.safetensors")
    fresh = generate(ENGINES[name](tmp_path), requests)
    assert tokens_of(after) == tokens_of(fresh)
    assert [one.logprobs.tolist() for one in after] == [one.logprobs.tolist() for one in fresh]
    assert [one.logprobs.tolist() for one in after] != [one.logprobs.tolist() for one in before]
    assert {int(version) for one in after for version in one.versions} == {1}


@pytest.mark.parametrize("name", ENGINES)
def test_a_canarys_greedy_output_is_unchanged_when_weights_are(name: str, old: Path) -> None:
    engine = ENGINES[name](old)
    before = generate(engine, CANARY)
    asyncio.run(engine.publish(1, old))
    after = generate(engine, CANARY)
    assert tokens_of(after) == tokens_of(before)
    assert [one.logprobs.tolist() for one in after] == [one.logprobs.tolist() for one in before]


@pytest.mark.parametrize("name", ["kernels", "plain", "float32"])
def test_every_tensor_that_samples_is_in_the_fingerprint(name: str, old: Path) -> None:
    """Each weight is damaged where it is computed with, in turn."""
    engine = ENGINES[name](old)
    assert isinstance(engine, TorchEngine)
    whole = asyncio.run(engine.fingerprint())
    weights = engine._model.weights
    linears = [linear for layer in weights.layers for linear in (layer.qkv, layer.out, layer.gate_up, layer.down)]
    norms = [weights.norm, *(norm for layer in weights.layers for norm in (layer.attention_norm, layer.mlp_norm))]
    for norm in norms:
        norm[3] *= 2
        assert asyncio.run(engine.fingerprint()) != whole
        norm[3] /= 2
    for place, linear in enumerate(linears):
        layer = weights.layers[place // 4]
        field = ("qkv", "out", "gate_up", "down")[place % 4]
        damaged = engine._model.operations.unpack(linear).clone()
        damaged[1, 2] += 1
        setattr(layer, field, engine._model.operations.pack(damaged))
        assert asyncio.run(engine.fingerprint()) != whole
        setattr(layer, field, linear)
    assert asyncio.run(engine.fingerprint()) == whole


def test_a_head_that_went_astray_from_the_embedding_it_is_tied_to_is_an_error(old: Path) -> None:
    engine = TorchEngine(old, dtype="bfloat16")
    engine._model.weights.embedding[0, 0] += 1
    with pytest.raises(EngineError, match="hold different weights"):
        asyncio.run(engine.fingerprint())


def test_a_publish_that_did_not_arrive_is_seen(old: Path, new: Path) -> None:
    engine = ScriptedEngine(model=old, loses_publishes=True)
    asyncio.run(engine.publish(1, new))
    assert asyncio.run(engine.fingerprint()) != folder_fingerprint(new)
