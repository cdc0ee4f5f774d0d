"""L4 for any step: samples without a trainable token add nothing, wherever they stand and whatever they state."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.learn.parts import (
    ENTROPY_BONUS,
    KL_PENALTY,
    POLICY_GRADIENT,
    gradient,
    sample,
    some_samples,
    watching_trainer,
    weights,
    write_tiny_model,
)

from posttrain.core.types import Sample
from posttrain.learn.layout import LayoutOptions
from posttrain.learn.trainer import Trainer

torch.set_num_threads(1)

EMPTIES = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 4), st.none() | st.floats(0.5, 20.0), st.booleans()), max_size=4
)
"""Place among the others, tokens behind the prompt, stated denominator, whether its values are no numbers."""


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    folder = write_tiny_model(tmp_path_factory.mktemp("tiny"))
    return watching_trainer(folder, POLICY_GRADIENT, KL_PENALTY, ENTROPY_BONUS)


def empty(number: int, length: int, denominator: float | None, poisoned: bool) -> Sample:
    completion = [3] * length
    poison: dict[str, Any] = {}
    if poisoned:
        fields = ("behavior_logprobs", "advantages", "loss_weights", "reference_logprobs")
        poison = {name: np.full(2 + length, np.nan, np.float32) for name in fields}
    nothing = [False] * length
    return sample([1, 2], completion, name=f"empty-{number}", trainable=nothing, denominator=denominator, **poison)


@settings(max_examples=12, deadline=None)
@given(empties=EMPTIES, row_tokens=st.integers(0, 40), micro_batch_tokens=st.integers(1, 120))
def test_empty_samples_add_nothing_to_any_step(
    trainer: Trainer,
    empties: list[tuple[int, int, float | None, bool]],
    row_tokens: int,
    micro_batch_tokens: int,
) -> None:
    layout = LayoutOptions(micro_batch_tokens, row_tokens, 16)
    samples = some_samples()
    expected = gradient(trainer, samples, layout)
    loss = trainer.step(samples).loss
    for number, (place, length, denominator, poisoned) in enumerate(empties):
        samples.insert(min(place, len(samples)), empty(number, length, denominator, poisoned))
    assert torch.equal(gradient(trainer, samples, layout), expected)
    metrics = trainer.step(samples)
    assert metrics.loss == loss
    assert metrics.values["samples_without_loss_tokens"] == len(empties)
    assert metrics.values["empty_step"] == 0.0


@settings(max_examples=25, deadline=None)
@given(empties=EMPTIES)
def test_step_of_empty_samples_alone_is_zero_and_changes_nothing(
    trainer: Trainer, empties: list[tuple[int, int, float | None, bool]]
) -> None:
    before = weights(trainer)
    alone = [empty(number, *fields) for number, fields in enumerate((one[1], one[2], one[3]) for one in empties)]
    metrics = trainer.step(alone)
    assert (metrics.loss, metrics.grad_norm, metrics.num_loss_tokens) == (0.0, 0.0, 0)
    assert metrics.values["empty_step"] == 1.0
    assert all(math.isfinite(value) for value in metrics.values.values())
    assert torch.equal(weights(trainer), before)
