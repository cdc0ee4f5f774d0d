"""L2 for any step: one numerator over one denominator, however samples weigh and whatever denominators they state."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.learn.parts import (
    SUPERVISED,
    gradient,
    norm_in_its_own_dtype,
    replace,
    sample,
    watching_trainer,
    write_tiny_model,
)

from posttrain.core.types import Sample
from posttrain.learn.layout import LayoutOptions
from posttrain.learn.trainer import Trainer

torch.set_num_threads(1)

ONE_BY_ONE = LayoutOptions(micro_batch_tokens=1, row_tokens=1, hidden_size=16)
MASKS = st.lists(st.booleans(), min_size=1, max_size=5)
DENOMINATORS = st.none() | st.floats(0.5, 20.0)
STEPS = st.lists(st.tuples(MASKS, DENOMINATORS), min_size=1, max_size=5).filter(
    lambda rows: any(any(mask) for mask, _ in rows)
)
"""Which tokens of each sample are trained, and what it adds to the denominator."""


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trainer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("transformers.models.llama.modeling_llama.LlamaRMSNorm.forward", norm_in_its_own_dtype)
        yield watching_trainer(write_tiny_model(tmp_path_factory.mktemp("tiny")), SUPERVISED)


def step_of(rows: list[tuple[list[bool], float | None]]) -> list[Sample]:
    """Samples of one prompt, so that rows share it, each token with a weight of its own."""
    return [
        sample([1, 2], range(3, 3 + len(mask)), name=f"{i}", group="g", seed=i, trainable=mask, denominator=denominator)
        for i, (mask, denominator) in enumerate(rows)
    ]


@settings(max_examples=25, deadline=None)
@given(rows=STEPS, micro_batch_tokens=st.integers(1, 60), row_tokens=st.integers(0, 30))
def test_loss_and_gradient_are_weighted_sums_divided_once_by_the_sum_of_all_denominators(
    trainer: Trainer,
    rows: list[tuple[list[bool], float | None]],
    micro_batch_tokens: int,
    row_tokens: int,
) -> None:
    samples = step_of(rows)
    trained = [s for s in samples if s.trainable.any()]
    denominator = sum(
        float(s.loss_weights[s.trainable].sum(dtype=np.float64)) if s.denominator is None else s.denominator
        for s in trained
    )
    likelihoods = trainer.logprobs(samples)
    sums = [float((s.loss_weights * row)[s.trainable].sum()) for s, row in zip(samples, likelihoods, strict=True)]
    alone = [gradient(trainer, [replace(s, denominator=1.0)], ONE_BY_ONE) for s in trained]

    trainer._layout = LayoutOptions(micro_batch_tokens, row_tokens, 16)
    metrics = trainer.step(samples)
    found = trainer._memory.gradients[0].clone()

    assert metrics.num_loss_tokens == sum(s.num_loss_tokens for s in samples)
    assert metrics.loss == pytest.approx(-sum(sums) / denominator, rel=1e-5)
    assert torch.allclose(found, torch.stack(alone).sum(dim=0) / denominator, rtol=0, atol=1e-10)
