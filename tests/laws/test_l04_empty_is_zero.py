"""L4: without a trainable token there is zero loss, zero gradient, no NaN and no change; it is counted."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.learn.parts import POLICY_GRADIENT, gradient, replace, sample, some_samples, weights, write_tiny_model

from posttrain.core.protocols import StageSpec
from posttrain.core.types import Annotations
from posttrain.learn.trainer import Trainer
from posttrain.rewards.group_mean import GroupMean

torch.set_num_threads(1)

EMPTY = sample([1, 2], [3, 4], name="empty", trainable=[False, False])


@pytest.fixture
def trainer(tmp_path: Path) -> Trainer:
    trainer = Trainer(write_tiny_model(tmp_path), dtype="float64")
    options = {"learning_rate": 1e-2, "weight_decay": 0.1, "schedule": "linear"}
    trainer.begin_stage(StageSpec([POLICY_GRADIENT], options, total_steps=10))
    return trainer


@pytest.mark.parametrize("samples", [[], [EMPTY], [EMPTY, EMPTY]], ids=len)
def test_empty_step_changes_no_parameter_and_says_so(trainer: Trainer, samples: list[object]) -> None:
    trainer.step(some_samples())  # momentum and decay would move the parameters
    before = weights(trainer)
    metrics = trainer.step(samples)  # type: ignore[arg-type]
    assert torch.equal(weights(trainer), before)
    assert (metrics.loss, metrics.grad_norm, metrics.num_loss_tokens, metrics.num_computed_tokens) == (0, 0, 0, 0)
    assert metrics.values["empty_step"] == 1.0
    assert metrics.values["samples_without_loss_tokens"] == len(samples)
    assert all(math.isfinite(value) for value in metrics.values.values())


def test_step_of_zero_weights_is_empty(trainer: Trainer) -> None:
    before = weights(trainer)
    weightless = [replace(s, loss_weights=np.zeros_like(s.loss_weights)) for s in some_samples()]
    assert trainer.step(weightless).values["empty_step"] == 1.0
    assert torch.equal(weights(trainer), before)


def test_step_without_loss_tokens_is_empty_whatever_denominators_it_states(trainer: Trainer) -> None:
    before = weights(trainer)
    assert trainer.step([replace(EMPTY, denominator=1.0)]).values["empty_step"] == 1.0
    assert torch.equal(weights(trainer), before)


def test_schedule_goes_on_over_an_empty_step(trainer: Trainer) -> None:
    rates = [trainer.step(samples).learning_rate for samples in ([EMPTY], some_samples(), [EMPTY])]
    assert rates == pytest.approx([1e-2, 0.9e-2, 0.8e-2])


def test_empty_sample_beside_others_adds_nothing(trainer: Trainer) -> None:
    trainer.begin_stage(StageSpec([POLICY_GRADIENT], {"learning_rate": 0.0, "max_grad_norm": 0.0}, total_steps=1))
    expected = gradient(trainer, some_samples())
    assert torch.equal(gradient(trainer, [EMPTY, *some_samples()]), expected)
    assert torch.equal(gradient(trainer, [replace(EMPTY, denominator=5.0), *some_samples()]), expected)
    metrics = trainer.step([EMPTY, *some_samples()])
    assert metrics.values["empty_step"] == 0.0
    assert metrics.values["samples_without_loss_tokens"] == 1.0


def test_no_groups_give_no_advantages() -> None:
    assert GroupMean()([], Annotations()) == []
