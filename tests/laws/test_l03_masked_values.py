"""L3: no value at a masked position is read, NaN and infinities included."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.learn.parts import (
    ENTROPY_BONUS,
    KL_PENALTY,
    POLICY_GRADIENT,
    VALUE,
    gradient,
    judged,
    replace,
    some_samples,
    watching_trainer,
    write_tiny_model,
)

from posttrain.core.types import Sample
from posttrain.learn.layout import LayoutOptions
from posttrain.learn.trainer import Trainer

torch.set_num_threads(1)

FIELDS = ("behavior_logprobs", "advantages", "loss_weights", "reference_logprobs", "values", "returns")


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    folder = write_tiny_model(tmp_path_factory.mktemp("tiny"))
    return watching_trainer(folder, POLICY_GRADIENT, KL_PENALTY, ENTROPY_BONUS, VALUE, critic=True)


def poisoned(s: Sample, value: float) -> Sample:
    fields = {name: np.where(s.trainable, getattr(s, name), np.float32(value)) for name in FIELDS}
    return replace(s, **fields, versions=np.where(s.trainable, s.versions, 99).astype(np.int32))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30])
@pytest.mark.parametrize("row_tokens", [1, 128])
def test_masked_values_change_no_gradient_and_no_metric(trainer: Trainer, value: float, row_tokens: int) -> None:
    trainer._layout = LayoutOptions(4096, row_tokens, 16)
    clean = judged(some_samples())
    dirty = [poisoned(s, value) for s in clean]
    expected, metrics = gradient(trainer, clean), trainer.step(clean)
    assert torch.equal(gradient(trainer, dirty), expected)
    after = trainer.step(dirty)
    assert (after.loss, after.grad_norm, after.values) == (metrics.loss, metrics.grad_norm, metrics.values)


def test_tokens_after_the_last_trainable_one_are_not_read(trainer: Trainer) -> None:
    longer = [
        replace(
            s,
            tokens=np.append(s.tokens, np.int32(5)),
            trainable=np.append(s.trainable, False),
            versions=np.append(s.versions, np.int32(-1)),
            **{name: np.append(getattr(s, name), np.float32(np.nan)) for name in FIELDS},
        )
        for s in judged(some_samples())
    ]
    assert torch.equal(gradient(trainer, longer), gradient(trainer, judged(some_samples())))
