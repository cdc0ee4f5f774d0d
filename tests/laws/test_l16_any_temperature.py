"""L16 for any temperature: what the sampler says of its tokens is what the trainer finds, sample by sample."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engines.parts import generate, prompt, request, save_model
from tests.learn.parts import sample

from posttrain.engines.reference import ReferenceEngine
from posttrain.engines.torch import TorchEngine
from posttrain.learn.trainer import Trainer

torch.set_num_threads(1)

TOLERANCE = 1e-4
"""Of a log-prob in float32, at temperatures of at least a quarter."""
ENGINES: dict[str, Callable[[Path], TorchEngine | ReferenceEngine]] = {
    "torch": lambda model: TorchEngine(model, dtype="float32"),
    "reference": lambda model: ReferenceEngine(model, dtype="float32"),
}
REQUESTS = st.lists(st.tuples(st.integers(1, 20), st.floats(0.25, 4.0), st.integers(0, 2**62)), min_size=1, max_size=4)
"""Length of the prompt, temperature, seed."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def trainer(model: Path) -> Trainer:
    return Trainer(model, dtype="float32")


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest, model: Path) -> TorchEngine | ReferenceEngine:
    return ENGINES[request.param](model)


@settings(max_examples=15, deadline=None)
@given(requests=REQUESTS)
def test_sampler_and_trainer_agree_at_any_temperatures_side_by_side(
    engine: TorchEngine | ReferenceEngine, trainer: Trainer, requests: list[tuple[int, float, int]]
) -> None:
    asked = [
        request(str(number), prompt(length), 6, seed, temperature=temperature)
        for number, (length, temperature, seed) in enumerate(requests)
    ]
    found = generate(engine, asked)
    samples = [
        sample(one.prompt.tolist(), generation.tokens.tolist(), name=one.request_id, temperature=one.temperature)
        for one, generation in zip(asked, found, strict=True)
    ]
    for s, generation, row in zip(samples, found, trainer.logprobs(samples), strict=True):
        np.testing.assert_allclose(row[s.trainable], generation.logprobs, atol=TOLERANCE)


def test_another_temperature_would_not_agree(engine: TorchEngine | ReferenceEngine, trainer: Trainer) -> None:
    one = request(max_new_tokens=20, temperature=1.5)
    (generation,) = generate(engine, [one])
    s = sample(one.prompt.tolist(), generation.tokens.tolist(), temperature=1.5)
    for temperature in (1.0, 1.6):
        (row,) = trainer.logprobs([replace(s, temperature=temperature)])
        assert np.abs(row[s.trainable] - generation.logprobs).max() > 10 * TOLERANCE
