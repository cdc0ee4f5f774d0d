"""L1 over processes: any number of data-parallel ranks gives the parameters that one rank gives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from tests.learn.parts import (
    ENTROPY_BONUS,
    KL_PENALTY,
    POLICY_GRADIENT,
    SUPERVISED,
    VALUE,
    judged,
    norm_in_its_own_dtype,
    run_ranks,
    sample,
    some_samples,
    write_tiny_model,
)

from posttrain.core.protocols import StageSpec, StepMetrics
from posttrain.learn.trainer import Trainer

torch.set_num_threads(1)

TOLERANCE = 1e-10
OPTIONS = {"learning_rate": 1e-3, "weight_decay": 0.1, "max_grad_norm": 0.5}
EMPTY = sample([1, 2], [3], name="empty", trainable=[False])
STEPS = [judged(samples) for samples in (some_samples(), some_samples()[2:], [EMPTY], some_samples()[:1])]
"""Among them one without a trainable token, and one with fewer trees than ranks."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("transformers.models.llama.modeling_llama.LlamaRMSNorm.forward", norm_in_its_own_dtype)
        yield write_tiny_model(tmp_path_factory.mktemp("tiny"))


def train(
    model: Path, losses: list[dict[str, Any]], rank: int, world_size: int, rendezvous: str
) -> tuple[npt.NDArray[np.float64], list[StepMetrics]]:
    trainer = Trainer(model, "float64", rank, world_size, rendezvous, critic=VALUE in losses)
    trainer.begin_stage(StageSpec(losses, OPTIONS, total_steps=10, keep_reference=True))
    metrics = [trainer.step(samples) for samples in STEPS]
    weights = trainer._memory.weights.numpy().copy()
    trainer.close()
    return weights, metrics


@pytest.mark.parametrize(
    "losses",
    [[SUPERVISED], [{"name": "gspo"}], [POLICY_GRADIENT, KL_PENALTY, ENTROPY_BONUS, VALUE]],
    ids=["supervised", "gspo", "several"],
)
@pytest.mark.parametrize("world_size", [2, 3])
def test_several_ranks_give_what_one_gives(model: Path, losses: list[dict[str, Any]], world_size: int) -> None:
    expected, expected_metrics = train(model, losses, 0, 1, "")
    outcomes = run_ranks(world_size, lambda rank, at: train(model, losses, rank, world_size, at))
    for weights, metrics in outcomes:
        assert np.abs(weights - expected).max() < TOLERANCE
        assert np.array_equal(weights, outcomes[0][0])
        for ours, theirs in zip(metrics, expected_metrics, strict=True):
            assert ours.loss == pytest.approx(theirs.loss, abs=TOLERANCE)
            assert ours.grad_norm == pytest.approx(theirs.grad_norm, abs=TOLERANCE)
            assert ours.num_loss_tokens == theirs.num_loss_tokens
            assert ours.values == pytest.approx(theirs.values, abs=TOLERANCE)


def test_checkpoint_of_two_ranks_goes_on_in_one(model: Path, tmp_path: Path) -> None:
    def save_then_step(rank: int, rendezvous: str) -> tuple[npt.NDArray[np.float64], str]:
        trainer = Trainer(model, dtype="float64", rank=rank, world_size=2, rendezvous=rendezvous)
        trainer.begin_stage(StageSpec([POLICY_GRADIENT], OPTIONS, total_steps=10))
        trainer.step(some_samples())
        trainer.save(tmp_path / "checkpoint")
        trainer.step(some_samples())
        fingerprint = trainer.export(tmp_path / f"export-{rank}")
        return trainer._memory.weights.numpy().copy(), fingerprint

    (weights, fingerprint), (_, other) = run_ranks(2, save_then_step)
    assert fingerprint == other
    trainer = Trainer(model, dtype="float64")
    trainer.load(tmp_path / "checkpoint")
    trainer.step(some_samples())
    assert np.abs(trainer._memory.weights.numpy() - weights).max() < TOLERANCE
