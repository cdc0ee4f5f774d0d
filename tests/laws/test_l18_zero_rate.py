"""L18: with a learning rate of zero the mismatch between sampler and trainer stays flat, for as long as it runs.

Each round is a whole step: sample, learn, export, publish. The requests are the same in every round, so with weights
that stay where they are each round's mismatch is the first one's, bit for bit.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engines.parts import generate, groups, save_model
from tests.learn.parts import sample, stage_of, weights
from tests.losses.loss_parts import policy_losses

from posttrain.core.types import Sample
from posttrain.engines.torch import TorchEngine
from posttrain.learn.trainer import Trainer

torch.set_num_threads(1)

Dtype = Literal["bfloat16", "float32"]
DTYPES: tuple[Dtype, ...] = ("bfloat16", "float32")
OPTIONS = st.fixed_dictionaries(
    {
        "weight_decay": st.sampled_from([0.0, 0.5]),
        "max_grad_norm": st.sampled_from([0.0, 1e-3, 1.0]),
        "schedule": st.sampled_from(["constant", "linear", "cosine"]),
        "warmup_steps": st.integers(0, 2),
    }
)


@pytest.fixture(scope="module", params=DTYPES)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Dtype]:
    folder = tmp_path_factory.mktemp("model")
    return save_model(folder, dtype=getattr(torch, request.param)), request.param


class Rounds:
    """A sampler and a trainer that publishes to it, unless its publishes are lost."""

    def __init__(self, model: tuple[Path, Dtype], out: Path, loss: dict[str, Any], **options: Any) -> None:
        folder, dtype = model
        self.engine = TorchEngine(folder, dtype=dtype)
        self.trainer = Trainer(folder, dtype=dtype)
        self.trainer.begin_stage(stage_of(loss, **options))
        self.out = out

    def samples(self, temperature: float) -> list[Sample]:
        asked = groups(2, 2, max_new_tokens=5, temperature=temperature)
        return [
            sample(
                one.prompt.tolist(),
                found.tokens.tolist(),
                name=one.request_id,
                group=one.group,
                temperature=temperature,
                behavior_logprobs=np.append(np.zeros(len(one.prompt), np.float32), found.logprobs),
            )
            for one, found in zip(asked, generate(self.engine, asked), strict=True)
        ]

    def run(self, rounds: int, temperature: float, *, publishes: bool = True) -> list[float]:
        """The largest mismatch of each round, before its update."""
        found = []
        for version in range(1, rounds + 1):
            found.append(self.trainer.step(self.samples(temperature)).values["mismatch_max"])
            fingerprint = self.trainer.export(self.out)
            if publishes:
                asyncio.run(self.engine.publish(version, self.out))
                assert asyncio.run(self.engine.fingerprint()) == fingerprint
        return found


@settings(max_examples=6, deadline=None)
@given(
    loss=st.sampled_from(policy_losses()),
    options=OPTIONS,
    rounds=st.integers(2, 6),
    temperature=st.sampled_from([0.5, 1.0, 2.0]),
)
def test_mismatch_stays_flat_and_the_weights_where_they_are(
    model: tuple[Path, Dtype],
    tmp_path_factory: pytest.TempPathFactory,
    loss: str,
    options: dict[str, Any],
    rounds: int,
    temperature: float,
) -> None:
    both = Rounds(model, tmp_path_factory.mktemp("out"), {"name": loss}, learning_rate=0.0, **options)
    before = weights(both.trainer)
    mismatches = both.run(rounds, temperature)
    assert mismatches == [mismatches[0]] * rounds
    assert torch.equal(weights(both.trainer), before)


def test_mismatch_is_not_flat_where_weights_move_behind_the_samplers_back(
    model: tuple[Path, Dtype], tmp_path: Path
) -> None:
    """What the law would see of a rate of zero that still learned, or of publishes that were lost."""
    moving = Rounds(model, tmp_path, {"name": "reinforce"}, learning_rate=3e-3)
    first, *later = moving.run(4, 1.0, publishes=False)
    assert min(later) > 5 * first
