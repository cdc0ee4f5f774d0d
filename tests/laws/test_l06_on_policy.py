"""L6: on fresh on-policy data every ratio is 1, at every temperature, and clipping leaves the plain policy gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.learn.parts import POLICY_GRADIENT, replace, sample, watching_trainer, write_tiny_model

from posttrain.core.types import Sample
from posttrain.learn.trainer import Trainer
from posttrain.losses.base import LossInputs
from posttrain.losses.clipped_policy_gradient import ClippedPolicyGradient

torch.set_num_threads(1)

DTYPES = {"float64": 1e-6, "float32": 1e-4, "bfloat16": 0.2}
"""Largest deviation of a ratio from 1: bfloat16 rounds the hidden states."""


@pytest.fixture(scope="module", params=DTYPES)
def trainer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    folder = write_tiny_model(tmp_path_factory.mktemp("tiny"))
    return watching_trainer(folder, POLICY_GRADIENT, dtype=request.param)


def sampled_by(trainer: Trainer, temperature: float, seed: int) -> Sample:
    """Drawn one token at a time from the trainer's own model, by transformers alone."""
    draw = torch.Generator().manual_seed(seed)
    tokens, logprobs = [1, 2, 3], [0.0, 0.0, 0.0]
    for _ in range(8):
        with torch.no_grad():
            logits = trainer._policy.model(torch.tensor([tokens])).logits[0, -1].double()
        table = torch.log_softmax(logits / temperature, dim=-1)
        tokens.append(int(torch.multinomial(table.exp(), 1, generator=draw)))
        logprobs.append(float(table[tokens[-1]]))
    completion = sample(tokens[:3], tokens[3:], name=f"{seed}", group="g", temperature=np.float32(temperature).item())
    return replace(completion, behavior_logprobs=np.asarray(logprobs, np.float32))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_every_ratio_is_one_at_every_temperature(trainer: Trainer, temperature: float) -> None:
    samples = [sampled_by(trainer, temperature, seed) for seed in range(4)]
    values = trainer.step(samples).values
    tolerance = DTYPES[trainer._dtype]
    assert values["importance_ratio"] == pytest.approx(1.0, abs=tolerance)
    assert values["mismatch_max"] < tolerance
    assert values["clipped_share"] == 0.0
    assert values["capped_share"] == 0.0


def test_forgetting_the_temperature_would_show(trainer: Trainer) -> None:
    samples = [replace(sampled_by(trainer, 0.5, seed), temperature=1.0) for seed in range(4)]
    assert trainer.step(samples).values["mismatch_max"] > 2 * DTYPES[trainer._dtype]


@pytest.mark.parametrize(
    "options", [{}, {"clip_low": 0.01, "clip_high": 0.01}, {"max_importance_weight": 1.0}], ids=str
)
def test_clipped_objective_has_the_plain_policy_gradient(options: dict[str, Any]) -> None:
    """Against −Σ advantage · ∇log policy, at ratios that are 1 exactly."""
    logits = torch.randn(9, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    advantages = torch.randn(9, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    logprobs = torch.log_softmax(logits, dim=-1)
    inputs = LossInputs(logprobs, logprobs.detach(), advantages, torch.zeros(9, dtype=torch.int64), 1)
    (ours,) = torch.autograd.grad(ClippedPolicyGradient(**options)(inputs).terms["policy_loss"].sum(), logits)
    (plain,) = torch.autograd.grad(-(advantages * torch.log_softmax(logits, dim=-1)).sum(), logits)
    assert plain.abs().max() > 0.1
    assert torch.allclose(ours, plain, rtol=0, atol=1e-12)
