"""L17 for any history of publishes: what samples is what was published last, and every element of it is in the
fingerprint."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from tests.engines.parts import generate, groups, save_model, tokens_of

from posttrain.core.fingerprint import folder_fingerprint
from posttrain.core.protocols import Generation
from posttrain.engines.checkpoint import tensors_fingerprint
from posttrain.engines.torch import TorchEngine

torch.set_num_threads(1)

NUM_WEIGHTS = 3
REQUESTS = groups(2, 2, max_new_tokens=6)


def said(generations: list[Generation]) -> tuple[list[list[int]], list[list[float]]]:
    return tokens_of(generations), [one.logprobs.tolist() for one in generations]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Models that are small updates away from one another."""
    first = save_model(tmp_path_factory.mktemp("0"))
    tensors = load_file(first / "model.safetensors")
    found = [first]
    for number in range(1, NUM_WEIGHTS):
        folder = tmp_path_factory.mktemp(str(number))
        (folder / "config.json").write_text((first / "config.json").read_text())
        draw = torch.Generator().manual_seed(number)
        moved = {name: t + 0.01 * torch.randn(t.shape, generator=draw) for name, t in tensors.items()}
        save_file(moved, folder / "model.safetensors", metadata={"format": "pt"})
        found.append(folder)
    return found


@pytest.fixture(scope="module")
def fresh(folders: list[Path]) -> list[tuple[list[list[int]], list[list[float]]]]:
    """What engines say that began with the weights."""
    found = [said(generate(TorchEngine(folder, dtype="float32"), REQUESTS)) for folder in folders]
    assert len({str(one) for one in found}) == NUM_WEIGHTS
    return found


@settings(max_examples=15, deadline=None)
@given(history=st.lists(st.tuples(st.integers(0, NUM_WEIGHTS - 1), st.booleans()), min_size=1, max_size=5))
def test_after_any_publishes_the_engine_is_one_that_began_with_the_last(
    folders: list[Path],
    fresh: list[tuple[list[list[int]], list[list[float]]]],
    history: list[tuple[int, bool]],
) -> None:
    """Whether it generates in between or not: nothing of older weights lingers."""
    engine = TorchEngine(folders[0], dtype="float32")
    for version, (number, generates) in enumerate(history, start=1):
        asyncio.run(engine.publish(version, folders[number]))
        assert asyncio.run(engine.fingerprint()) == folder_fingerprint(folders[number])
        if generates:
            assert said(generate(engine, REQUESTS)) == fresh[number]
    found = generate(engine, REQUESTS)
    assert said(found) == fresh[history[-1][0]]
    assert {int(version) for one in found for version in one.versions} == {len(history)}


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_bit_of_any_element_changes_the_fingerprint(folders: list[Path], data: st.DataObject) -> None:
    tensors = load_file(folders[0] / "model.safetensors")
    whole = tensors_fingerprint(tensors.items())
    name = data.draw(st.sampled_from(sorted(tensors)))
    bits = tensors[name].view(torch.int32).flatten()
    bits[data.draw(st.integers(0, len(bits) - 1))] ^= 1 << data.draw(st.integers(0, 30))
    assert tensors_fingerprint(tensors.items()) != whole
