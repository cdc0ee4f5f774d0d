"""L3 for long rows: what stands at masked positions is not read where attention goes part by part either."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.learn.parts import POLICY_GRADIENT, gradient, replace, some_samples, watching_trainer, write_tiny_model

from posttrain.core.types import Sample
from posttrain.learn import attention, layout
from posttrain.learn.layout import LayoutOptions
from posttrain.learn.trainer import Trainer

torch.set_num_threads(1)

FIELDS = ("behavior_logprobs", "advantages", "loss_weights", "reference_logprobs")
LAYOUT = LayoutOptions(micro_batch_tokens=4096, row_tokens=40, hidden_size=16)


@pytest.fixture
def trainer(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Trainer:
    monkeypatch.setattr(layout, "DENSE_POSITIONS", 0)
    return watching_trainer(write_tiny_model(tmp_path_factory.mktemp("tiny")), POLICY_GRADIENT)


def poisoned(s: Sample, value: float) -> Sample:
    return replace(s, **{name: np.where(s.trainable, getattr(s, name), np.float32(value)) for name in FIELDS})


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
def test_masked_values_change_no_gradient(trainer: Trainer, value: float) -> None:
    expected = gradient(trainer, some_samples(), LAYOUT)
    assert torch.equal(gradient(trainer, [poisoned(s, value) for s in some_samples()], LAYOUT), expected)


def test_keys_and_values_of_padding_are_not_read(trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = gradient(trainer, some_samples(), LAYOUT)
    plain = attention.attention_in_parts
    num_padding = 0

    def poison_padding(
        query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, parts: torch.Tensor, scale: float
    ) -> torch.Tensor:
        nonlocal num_padding
        padding = torch.ones(key.shape[0], key.shape[2], dtype=torch.bool)
        for part in parts.tolist():
            padding[part[0], part[3] : part[4]] = False
        num_padding += int(padding.sum())
        hole = padding[:, None, :, None]
        return plain(query, key.masked_fill(hole, np.nan), value.masked_fill(hole, np.nan), parts, scale)

    monkeypatch.setattr(attention, "attention_in_parts", poison_padding)
    assert torch.equal(gradient(trainer, some_samples(), LAYOUT), expected)
    assert num_padding > 0
