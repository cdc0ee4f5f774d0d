"""What a trainer hands to its losses is each sample's own, and what a critic says is learned by the trunk too."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.learn.parts import (
    KL_PENALTY,
    POLICY_GRADIENT,
    VALUE,
    gradient,
    judged,
    some_samples,
    watching_trainer,
)
from torch import Tensor

from posttrain.core.types import FloatArray, Sample
from posttrain.learn.layout import LayoutOptions
from posttrain.learn.objective import Objective
from posttrain.learn.trainer import Trainer
from posttrain.losses.base import LossInputs, Terms

PACKED = LayoutOptions(micro_batch_tokens=4096, row_tokens=128, hidden_size=16)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[LossInputs]:
    """All that losses are given from now on."""
    found: list[LossInputs] = []
    plain = Objective.terms

    def watch(self: Objective, inputs: LossInputs, factors: Mapping[str, float]) -> Terms:
        found.append(inputs)
        return plain(self, inputs, factors)

    monkeypatch.setattr(Objective, "terms", watch)
    return found


def own(tensor: Tensor | None, tokens: Tensor) -> FloatArray:
    assert tensor is not None
    return tensor.detach()[tokens].numpy().astype(np.float32)


def test_every_field_of_a_loss_token_is_its_samples_own(tiny_model: Path, seen: list[LossInputs]) -> None:
    trainer = watching_trainer(tiny_model, POLICY_GRADIENT, KL_PENALTY, VALUE, critic=True)
    samples = judged(some_samples())
    gradient(trainer, samples, PACKED)
    (inputs,) = seen
    policy, critic = trainer.logprobs(samples), trainer.values(samples)
    by_advantages = {s.advantages[s.trainable].tobytes(): number for number, s in enumerate(samples)}
    met = set()
    for segment in range(inputs.num_segments):
        tokens = inputs.segments == segment
        number = by_advantages[own(inputs.advantages, tokens).tobytes()]
        met.add(number)
        s, mask = samples[number], samples[number].trainable
        stated = {name: getattr(s, name) for name in ("behavior_logprobs", "reference_logprobs", "returns")}
        for name, values in {**stated, "old_values": s.values}.items():
            assert np.array_equal(own(getattr(inputs, name), tokens), values[mask]), name
        np.testing.assert_allclose(own(inputs.trainer_logprobs, tokens), policy[number][mask], atol=1e-5)
        np.testing.assert_allclose(own(inputs.values, tokens), critic[number][mask], atol=1e-5)
    assert met == set(range(len(samples)))


def plain_value_gradient(trainer: Trainer, samples: list[Sample]) -> dict[str, Tensor]:
    """Of half the weighted mean squared error of the critic, one sample at a time, through transformers alone."""
    model: Any = trainer._policy.model
    head = trainer._policy.critic
    assert head is not None
    total = sum(s.weight for s in samples)
    loss = torch.zeros((), dtype=torch.float64)
    for s in samples:
        assert s.returns is not None
        hidden = model.base_model(torch.from_numpy(s.tokens).long()[None]).last_hidden_state[0]
        for place in np.flatnonzero(s.trainable):
            error = (hidden[place - 1] * head.weight[0]).sum() - float(s.returns[place])
            loss = loss + float(s.loss_weights[place]) * 0.5 * error.square() / total
    names, parameters = zip(*model.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(loss, parameters), strict=True))


@pytest.mark.usefixtures("exact_norms")
def test_gradient_of_the_values_error_is_that_of_the_whole_model(tiny_model: Path) -> None:
    trainer = watching_trainer(tiny_model, {"name": "value", "coefficient": 1.0, "clip": 0.0}, critic=True)
    samples = judged(some_samples())
    ours = trainer._parameters.views(gradient(trainer, samples, PACKED))
    for name, theirs in plain_value_gradient(trainer, samples).items():
        assert theirs.abs().max() > 1e-3, name
        assert (ours[name] - theirs).abs().max() < 1e-9, name
