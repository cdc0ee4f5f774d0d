"""L2: numerator and denominator read one mask; the denominator is the step's global weight, divided by once."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.learn.parts import SUPERVISED, gradient, replace, sample, watching_trainer, write_tiny_model

from posttrain.learn.layout import LayoutOptions
from posttrain.learn.trainer import Trainer

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    return watching_trainer(write_tiny_model(tmp_path_factory.mktemp("tiny")), SUPERVISED)


SHORT = sample([1, 2], [3], name="short", loss_weights=np.ones(3, np.float32))
LONG = sample([1, 2], [4, 5, 6, 7, 8, 9], name="long", loss_weights=np.ones(8, np.float32))


@pytest.mark.parametrize("micro_batch_tokens", [1, 4096])
def test_loss_is_the_mean_over_all_tokens_not_over_micro_batches(trainer: Trainer, micro_batch_tokens: int) -> None:
    trainer._layout = LayoutOptions(micro_batch_tokens, row_tokens=1, hidden_size=16)
    rows = trainer.logprobs([SHORT, LONG])
    expected = -sum(float(row.sum()) for row in rows) / 7
    metrics = trainer.step([SHORT, LONG])
    assert metrics.num_loss_tokens == 7
    assert metrics.loss == pytest.approx(expected, rel=1e-6)


def test_weights_of_trainable_tokens_alone_make_the_denominator(trainer: Trainer) -> None:
    heavy_prompt = replace(LONG, loss_weights=np.where(LONG.trainable, 1.0, 1000.0).astype(np.float32))
    assert torch.equal(gradient(trainer, [heavy_prompt]), gradient(trainer, [LONG]))


def test_scaling_every_weight_changes_nothing(trainer: Trainer) -> None:
    doubled = [replace(s, loss_weights=2 * s.loss_weights) for s in (SHORT, LONG)]
    assert torch.allclose(gradient(trainer, doubled), gradient(trainer, [SHORT, LONG]), rtol=0, atol=1e-12)


def test_weights_express_other_reductions(trainer: Trainer) -> None:
    """Each sample's weights divided by its length give the mean over samples of their token means."""
    per_sample = [replace(s, loss_weights=s.loss_weights / np.float32(s.num_loss_tokens)) for s in (SHORT, LONG)]
    apart = (gradient(trainer, [SHORT]) + gradient(trainer, [LONG])) / 2
    assert torch.allclose(gradient(trainer, per_sample), apart, rtol=0, atol=1e-6)
