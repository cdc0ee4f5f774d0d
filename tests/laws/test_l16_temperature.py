"""L16, the trainer's side: log-probs are those of the distribution sampled from, at each sample's own temperature."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.learn.parts import SUPERVISED, gradient, replace, some_samples, watching_trainer, write_tiny_model

from posttrain.core.errors import UserError
from posttrain.learn.trainer import Trainer

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    return watching_trainer(write_tiny_model(tmp_path_factory.mktemp("tiny")), SUPERVISED)


def test_each_sample_is_judged_at_its_own_temperature(trainer: Trainer) -> None:
    model: Any = trainer._policy.model
    samples = [replace(s, temperature=0.5 + 0.25 * i) for i, s in enumerate(some_samples())]
    for s, ours in zip(samples, trainer.logprobs(samples), strict=True):
        tokens = torch.from_numpy(s.tokens).long()
        with torch.no_grad():
            table = torch.log_softmax(model(tokens[None]).logits[0] / s.temperature, dim=-1)
        for place in np.flatnonzero(s.trainable):
            assert ours[place] == pytest.approx(float(table[place - 1, tokens[place]]), abs=1e-5)
        assert not ours[~s.trainable].any()


def test_entropy_is_that_of_the_distribution_sampled_from(trainer: Trainer) -> None:
    model: Any = trainer._policy.model
    samples = [replace(s, temperature=0.5 + 0.25 * i) for i, s in enumerate(some_samples())]
    entropies: list[float] = []
    for s in samples:
        with torch.no_grad():
            table = torch.log_softmax(model(torch.from_numpy(s.tokens).long()[None]).logits[0] / s.temperature, dim=-1)
        by_place = -(table.exp() * table).sum(dim=-1)
        entropies += [float(by_place[place - 1]) for place in np.flatnonzero(s.trainable)]
    assert trainer.step(samples).values["entropy"] == pytest.approx(float(np.mean(entropies)), abs=1e-5)


def test_gradient_takes_the_temperature_too(trainer: Trainer) -> None:
    cold = [replace(s, temperature=0.5) for s in some_samples()]
    warm = [replace(s, temperature=1.0) for s in some_samples()]
    assert (gradient(trainer, cold) - gradient(trainer, warm)).abs().max() > 1e-3


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan")])
def test_temperature_that_nothing_can_be_sampled_at_is_refused(trainer: Trainer, temperature: float) -> None:
    with pytest.raises(UserError, match="sample a0 was sampled at temperature"):
        trainer.step([replace(some_samples()[0], temperature=temperature)])
