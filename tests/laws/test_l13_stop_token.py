"""L13, on the engine's side: the stop token that was sampled is returned with its log-prob; a truncated completion
gets no invented one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.engines.parts import VOCAB, generate, groups, request, save_model, trainer_logprobs

from posttrain.core.types import StopReason
from posttrain.engines.reference import ReferenceEngine
from posttrain.engines.torch import TorchEngine

torch.set_num_threads(1)

STOPS = tuple(range(0, VOCAB, 6))  # often met


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize("engine", [TorchEngine, ReferenceEngine])
def test_a_sampled_stop_token_is_the_last_token_and_has_its_own_logprob(
    engine: type[TorchEngine | ReferenceEngine], model: Path
) -> None:
    requests = groups(5, 4, max_new_tokens=12, stop_tokens=STOPS)
    found = generate(engine(model, dtype="float32"), requests)
    stopped = [one for one in found if one.stop is StopReason.STOP]
    assert len(stopped) > 5
    for one in stopped:
        assert int(one.tokens[-1]) in STOPS
        assert not set(one.tokens[:-1].tolist()) & set(STOPS)
        assert len(one.tokens) == len(one.logprobs) == len(one.versions)
    for one, logprobs in zip(found, trainer_logprobs(model, requests, found), strict=True):
        np.testing.assert_allclose(one.logprobs, logprobs, atol=1e-4)


@pytest.mark.parametrize("engine", [TorchEngine, ReferenceEngine])
def test_a_truncated_completion_gets_no_stop_token(engine: type[TorchEngine | ReferenceEngine], model: Path) -> None:
    for one in generate(engine(model, dtype="float32"), groups(5, 4, max_new_tokens=12, stop_tokens=STOPS)):
        if one.stop is StopReason.MAX_NEW_TOKENS:
            assert len(one.tokens) == 12
            assert not set(one.tokens.tolist()) & set(STOPS)


def test_a_marker_that_is_no_stop_token_of_the_request_stops_nothing(model: Path) -> None:
    engine = TorchEngine(model, dtype="float32")
    free = generate(engine, [request(max_new_tokens=20)])[0]
    with_other = generate(engine, [request("a", max_new_tokens=20), request("b", max_new_tokens=20, stop_tokens=STOPS)])
    assert with_other[0].tokens.tolist() == free.tokens.tolist()
