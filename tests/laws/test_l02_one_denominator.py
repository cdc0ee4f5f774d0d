"""L2: numerator and denominator read one mask; the denominator is the step's global weight, divided by once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from tests.learn.parts import (
    ENTROPY_BONUS,
    KL_PENALTY,
    POLICY_GRADIENT,
    SUPERVISED,
    gradient,
    norm_in_its_own_dtype,
    replace,
    sample,
    some_samples,
    stage_of,
    watching_trainer,
    write_tiny_model,
)

from posttrain.core.types import Sample
from posttrain.learn.layout import LayoutOptions
from posttrain.learn.trainer import Trainer

torch.set_num_threads(1)


@pytest.fixture(scope="module", autouse=True)
def exact_norms() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("transformers.models.llama.modeling_llama.LlamaRMSNorm.forward", norm_in_its_own_dtype)
        yield


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


def weighed(s: Sample, weight: float) -> Sample:
    """Every token of it alike; the sample is one of the things that the step's sum is divided by."""
    return replace(s, loss_weights=np.full(len(s.tokens), weight, np.float32), denominator=1.0)


def test_weights_of_one_over_the_length_give_the_mean_of_the_samples_means(trainer: Trainer) -> None:
    per_sample = [weighed(s, 1.0 / s.num_loss_tokens) for s in (SHORT, LONG)]
    apart = (gradient(trainer, [SHORT]) + gradient(trainer, [LONG])) / 2
    assert torch.allclose(gradient(trainer, per_sample), apart, rtol=0, atol=1e-6)


def test_weights_of_one_over_a_constant_weigh_all_tokens_alike_and_divide_by_the_samples(trainer: Trainer) -> None:
    """The sum over all tokens, over 8 and over the two samples."""
    fixed = [weighed(s, 1.0 / 8) for s in (SHORT, LONG)]
    expected = gradient(trainer, [SHORT, LONG]) * 7 / 8 / 2
    assert torch.allclose(gradient(trainer, fixed), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("micro_batch_tokens", [1, 4096])
def test_stated_denominators_are_added_up_over_the_step_not_the_micro_batch(
    trainer: Trainer, micro_batch_tokens: int
) -> None:
    stated = [replace(SHORT, denominator=3.0), replace(LONG, denominator=11.0)]
    trainer._layout = LayoutOptions(4096, row_tokens=1, hidden_size=16)
    expected = gradient(trainer, [SHORT, LONG]) * 7 / 14
    ours = gradient(trainer, stated, LayoutOptions(micro_batch_tokens, row_tokens=1, hidden_size=16))
    assert torch.allclose(ours, expected, rtol=0, atol=1e-12)


def test_terms_of_several_losses_are_divided_by_the_same_denominator(trainer: Trainer) -> None:
    samples = some_samples()
    all_losses: list[dict[str, Any]] = [POLICY_GRADIENT, KL_PENALTY, ENTROPY_BONUS]
    try:
        gradients = []
        for losses in [*([loss] for loss in all_losses), all_losses]:
            trainer.begin_stage(stage_of(*losses, learning_rate=0.0, max_grad_norm=0.0))
            gradients.append(gradient(trainer, samples))
        assert all(part.abs().max() > 1e-3 for part in gradients)
        assert torch.allclose(sum(gradients[:-1], torch.zeros(())), gradients[-1], rtol=0, atol=1e-12)
    finally:
        trainer.begin_stage(stage_of(SUPERVISED, learning_rate=0.0, max_grad_norm=0.0))
