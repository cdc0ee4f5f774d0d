"""L1 for long rows: attention in parts gives the gradient of one sample at a time, and samples stay alone in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.learn.parts import (
    POLICY_GRADIENT,
    SUPERVISED,
    VOCABULARY,
    gradient,
    norm_in_its_own_dtype,
    replace,
    sample,
    some_samples,
    watching_trainer,
    write_tiny_model,
)

from posttrain.core.types import IntArray, Sample
from posttrain.learn import layout
from posttrain.learn.layout import LayoutOptions
from posttrain.learn.trainer import Trainer

torch.set_num_threads(1)

TOLERANCE = 1e-10
ONE_BY_ONE = LayoutOptions(micro_batch_tokens=1, row_tokens=1, hidden_size=16)
ROWS = {"packed": 128, "short": 20, "computed": 0}


@pytest.fixture(scope="module", autouse=True)
def every_packed_row_is_long() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "DENSE_POSITIONS", 0)
        patch.setattr("transformers.models.llama.modeling_llama.LlamaRMSNorm.forward", norm_in_its_own_dtype)
        yield


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module", params=[SUPERVISED, POLICY_GRADIENT], ids=lambda loss: str(loss["name"]))
def trainer(request: pytest.FixtureRequest, model: Path) -> Trainer:
    return watching_trainer(model, request.param)


@pytest.fixture(scope="module")
def supervised(model: Path) -> Trainer:
    return watching_trainer(model, SUPERVISED)


@pytest.mark.parametrize("row_tokens", ROWS.values(), ids=ROWS)
def test_gradient_does_not_depend_on_attention_in_parts(trainer: Trainer, row_tokens: int) -> None:
    expected = gradient(trainer, some_samples(), ONE_BY_ONE)
    ours = gradient(trainer, some_samples(), LayoutOptions(4096, row_tokens, 16))
    assert expected.abs().max() > 1e-3
    assert (ours - expected).abs().max() < TOLERANCE


@settings(max_examples=15, deadline=None)
@given(
    groups=st.lists(
        st.tuples(st.integers(1, 12), st.lists(st.integers(1, 9), min_size=1, max_size=4)), min_size=1, max_size=4
    ),
    row_tokens=st.integers(0, 90),
    micro_batch_tokens=st.integers(1, 200),
)
def test_gradient_is_the_same_for_any_trees_and_any_budgets(
    supervised: Trainer, groups: list[tuple[int, list[int]]], row_tokens: int, micro_batch_tokens: int
) -> None:
    samples = [
        sample(range(1, prefix + 1), range(2, length + 2), name=f"{number}-{sibling}", group=f"{number}", seed=sibling)
        for number, (prefix, lengths) in enumerate(groups)
        for sibling, length in enumerate(lengths)
    ]
    expected = gradient(supervised, samples, ONE_BY_ONE)
    ours = gradient(supervised, samples, LayoutOptions(micro_batch_tokens, row_tokens, 16))
    assert (ours - expected).abs().max() < TOLERANCE


def with_other_completion(s: Sample) -> Sample:
    """Every token from the first trainable one on is another: the prefix, which siblings share, stays."""
    tokens: IntArray = np.where(np.cumsum(s.trainable) > 0, (s.tokens + 1) % VOCABULARY, s.tokens).astype(np.int32)
    return replace(s, tokens=tokens)


@pytest.mark.parametrize("dense_positions", [0, 2048], ids=["in_parts", "dense"])
@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_tokens_of_one_sample_change_nothing_of_another(
    model: Path, dtype: str, dense_positions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "DENSE_POSITIONS", dense_positions)
    trainer: Any = Trainer(model, dtype=dtype, row_tokens=128)
    samples = some_samples()
    before = trainer.logprobs(samples)
    for changed in range(len(samples)):
        others = [with_other_completion(s) if i == changed else s for i, s in enumerate(samples)]
        after = trainer.logprobs(others)
        assert not np.array_equal(after[changed], before[changed])
        for i in set(range(len(samples))) - {changed}:
            assert np.array_equal(after[i], before[i])
