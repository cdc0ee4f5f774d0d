"""L6: on fresh on-policy data every ratio is 1, at every temperature, and every policy loss, whatever it clips, caps,
masks or averages, has the plain policy gradient −Σ weight · advantage · ∇ log policy."""

from __future__ import annotations

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
    gradient,
    replace,
    sample,
    stage_of,
    watching_trainer,
    write_tiny_model,
)
from tests.losses.loss_parts import LENGTHS, SEEDS, VOCABULARY, policy_losses
from torch import Tensor

from posttrain.core.registry import build
from posttrain.core.types import Sample
from posttrain.learn.trainer import Trainer
from posttrain.losses.base import LossInputs

torch.set_num_threads(1)

DTYPES = {"float64": 1e-6, "float32": 1e-4, "bfloat16": 0.2}
"""Largest deviation of a ratio from 1: bfloat16 rounds the hidden states."""
TEMPERATURES = [0.5, 1.0, 2.0]
TIGHTEST: list[dict[str, Any]] = [
    *({"name": name} for name in policy_losses()),
    {"name": "clipped_policy_gradient", "clip_low": 1e-6, "clip_high": 1e-6, "max_importance_weight": 1.0},
    {"name": "clipped_policy_gradient", "dual_clip": 1.000001, "max_importance_weight": 0.0},
    {"name": "reinforce", "max_importance_weight": 1.0, "mask_low": 0.999999, "mask_high": 1.000001},
    {"name": "reinforce", "max_importance_weight": 0.0},
    {"name": "cispo", "clip_low": 1e-6, "clip_high": 1e-6},
    {"name": "gspo", "clip_low": 1e-6, "clip_high": 1e-6},
    {"name": "gspo", "length_normalized": False},
]
"""Every policy loss as it comes, and with bounds as tight as they can be."""


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


@pytest.mark.parametrize("temperature", TEMPERATURES)
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


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_every_policy_loss_trains_by_the_plain_policy_gradient(tmp_path: Path, temperature: float) -> None:
    """Against likelihoods that are weighed by advantages, through the model: the same trainer, another formula."""
    trainer = watching_trainer(write_tiny_model(tmp_path), SUPERVISED)
    samples = [sampled_by(trainer, temperature, seed) for seed in range(4)]
    weighed = [replace(s, loss_weights=s.loss_weights * s.advantages, denominator=s.weight) for s in samples]
    plain = gradient(trainer, weighed)
    assert plain.abs().max() > 1e-2
    for name in policy_losses():
        trainer.begin_stage(stage_of({"name": name}, learning_rate=0.0, max_grad_norm=0.0))
        ours = gradient(trainer, samples)
        assert (ours - plain).abs().max() < 1e-5, name  # behaviour log-probs are stored in float32


def drawn(lengths: list[int], temperature: float, seed: int) -> tuple[Tensor, LossInputs]:
    """Logits `[N, V]`, and inputs whose tokens were drawn from them just now at the temperature."""
    draw = torch.Generator().manual_seed(seed)
    logits = torch.randn(sum(lengths), VOCABULARY, generator=draw, dtype=torch.float64).requires_grad_()
    table = torch.log_softmax(logits / temperature, dim=-1)
    tokens = torch.cat([torch.multinomial(row.exp(), 1, generator=draw) for row in table.detach()] or [torch.empty(0)])
    logprobs = table.gather(1, tokens.long()[:, None])[:, 0]
    advantages = torch.randn(sum(lengths), generator=draw, dtype=torch.float64)
    segments = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    return logits, LossInputs(logprobs, logprobs.detach(), advantages, segments, len(lengths))


@pytest.mark.parametrize("spec", TIGHTEST, ids=str)
@settings(max_examples=20, deadline=None)
@given(lengths=LENGTHS.filter(any), seed=SEEDS, temperature=st.sampled_from(TEMPERATURES), data=st.data())
def test_every_policy_loss_has_the_plain_policy_gradient(
    spec: dict[str, Any], lengths: list[int], seed: int, temperature: float, data: st.DataObject
) -> None:
    """Whatever the reduction's weights; one over the length makes it (1 / |y|) Σ of each sample's tokens."""
    logits, inputs = drawn(lengths, temperature, seed)
    loss = build("loss", spec)
    by_sample = torch.tensor(data.draw(st.sampled_from([[1.0] * len(lengths), [1.0 / max(1, n) for n in lengths]])))
    weights = by_sample.double()[torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))]
    out = loss(inputs)
    (ours,) = torch.autograd.grad((weights * out.terms["policy_loss"]).sum(), logits, retain_graph=True)
    plain_term = -(weights * inputs.advantages * inputs.trainer_logprobs).sum()
    (plain,) = torch.autograd.grad(plain_term, logits)
    assert torch.allclose(ours, plain, rtol=0, atol=1e-12)
    for name in ("clipped_share", "capped_share", "masked_share"):
        assert not out.metrics.get(name, torch.zeros(1)).any()
