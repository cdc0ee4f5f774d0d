"""Sampling is keyed by request: a token is a function of seed, position and prompt, never of the batch around it."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engines.parts import generate, groups, prompt, request, save_model

from posttrain.engines.torch import TorchEngine

torch.set_num_threads(1)

REQUESTS = groups(5, 3, max_new_tokens=12, stop_tokens=(3, 4, 5, 6, 7))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def alone(model: Path) -> dict[str, list[int]]:
    engine = TorchEngine(model, dtype="float32")
    return {one.request_id: generate(engine, [one])[0].tokens.tolist() for one in REQUESTS}


@given(st.integers(0, 2**32), st.integers(1, len(REQUESTS)), st.integers(1, 20), st.booleans())
@settings(deadline=None, max_examples=15)
def test_a_request_gets_the_same_tokens_in_any_company(
    model: Path, alone: dict[str, list[int]], shuffle: int, count: int, max_rows: int, grouped: bool
) -> None:
    chosen = random.Random(shuffle).sample(REQUESTS, count)
    if not grouped:
        chosen = [dataclasses.replace(one, group="") for one in chosen]
    found = generate(TorchEngine(model, dtype="float32", max_rows=max_rows), chosen)
    assert {one.request_id: one.tokens.tolist() for one in found} == {
        one.request_id: alone[one.request_id] for one in chosen
    }


def test_siblings_with_one_seed_are_equal_and_with_others_are_not(model: Path) -> None:
    requests = [request(str(number), prompt(9), 12, seed, group="g") for number, seed in enumerate((5, 6, 5, 7))]
    first, second, third, fourth = (
        one.tokens.tolist() for one in generate(TorchEngine(model, dtype="bfloat16"), requests)
    )
    assert first == third
    assert len({tuple(tokens) for tokens in (first, second, fourth)}) == 3


def test_going_on_from_a_prefix_with_the_same_seed_continues_the_same_sequence(model: Path) -> None:
    """Positions count from the beginning of the context, so an interrupted request can be taken up again."""
    engine = TorchEngine(model, dtype="float32")
    whole = generate(engine, [request(max_new_tokens=12, seed=3)])[0].tokens.tolist()
    prefix = torch.cat([torch.from_numpy(prompt(5)), torch.tensor(whole[:4], dtype=torch.int32)]).numpy()
    assert generate(engine, [request(tokens=prefix, max_new_tokens=8, seed=3)])[0].tokens.tolist() == whole[4:]
