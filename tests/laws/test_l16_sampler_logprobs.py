"""L16, on the engine's side: log-probs are those of the distribution sampled from, temperature included, and the
distribution sampled from is the model's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.engines.parts import VOCAB, generate, groups, prompt, request, save_model, trainer_logprobs

from posttrain.engines.reference import ReferenceEngine
from posttrain.engines.torch import TorchEngine

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize("temperature", [1.0, 0.6, 1.5, 0.0])
@pytest.mark.parametrize("engine", [TorchEngine, ReferenceEngine])
def test_logprobs_are_those_of_the_distribution_sampled_from(
    engine: type[TorchEngine | ReferenceEngine], temperature: float, model: Path
) -> None:
    """A trainer that divides its logits by the temperature finds the same; greedy means the temperature-1 log-prob."""
    requests = groups(4, 2, max_new_tokens=20, temperature=temperature)
    found = generate(engine(model, dtype="float32"), requests)
    for one, expected in zip(found, trainer_logprobs(model, requests, found), strict=True):
        np.testing.assert_allclose(one.logprobs, expected, atol=1e-4)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_tokens_come_as_often_as_the_model_says(temperature: float, model: Path) -> None:
    from transformers import AutoModelForCausalLM

    num_draws = 4096
    requests = [
        request(str(seed), prompt(12), 1, seed, group="one", temperature=temperature) for seed in range(num_draws)
    ]
    found = generate(TorchEngine(model, dtype="float32", max_rows=1024), requests)
    counts = np.bincount([int(one.tokens[0]) for one in found], minlength=VOCAB)
    with torch.no_grad():
        logits = AutoModelForCausalLM.from_pretrained(model)(torch.from_numpy(prompt(12).astype(np.int64))[None]).logits
    probabilities = (logits[0, -1].double() / temperature).softmax(0).numpy()
    often = probabilities * num_draws > 10
    expected = np.append(probabilities[often], probabilities[~often].sum()) * num_draws
    observed = np.append(counts[often], counts[~often].sum())
    degrees = len(expected) - 1
    statistic = ((observed - expected) ** 2 / expected).sum()
    assert degrees >= 5
    assert statistic < degrees + 5 * np.sqrt(2 * degrees)
