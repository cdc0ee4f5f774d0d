"""Groups → rows: what the models are asked, about which rows, and at which temperature."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.rewards.parts import FAILURE, attempt, component, group, siblings

from posttrain.core.types import FloatArray, Group, Sample
from posttrain.run.credit import Credit, credit
from posttrain.run.rl_stage import CriticConfig, KLConfig, RlStage

PAIR = siblings([1.0, 0.0], [[2], [3]])
SILENT = siblings([0.5, 0.5], [[1], [1]], name="s", index=1)


class Answering:
    """A learner whose answers tell what it was asked: log-probs scale with the temperature, the reference's are
    another number."""

    POLICY, REFERENCE, VALUE = -1.0, -3.0, 0.25

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[str], set[float]]] = []

    async def logprobs(self, samples: Sequence[Sample], *, reference: bool = False) -> list[FloatArray]:
        self._note("reference" if reference else "policy", samples)
        number = self.REFERENCE if reference else self.POLICY
        return [np.where(s.trainable, np.float32(number * s.temperature), np.float32(0.0)) for s in samples]

    async def values(self, samples: Sequence[Sample]) -> list[FloatArray]:
        self._note("values", samples)
        return [np.where(s.trainable, np.float32(self.VALUE), np.float32(0.0)) for s in samples]

    def _note(self, question: str, samples: Sequence[Sample]) -> None:
        self.asked.append((question, [s.trajectory_id for s in samples], {s.temperature for s in samples}))


def credited(
    groups: Sequence[Group],
    learner: Answering,
    advantage: str = "group_mean",
    *,
    kl_in_reward: float = 0.0,
    **stage: Any,
) -> Credit:
    built = RlStage(kind="rl", advantage={"name": advantage}, **stage)
    return asyncio.run(credit(groups, built, component(advantage), learner, kl_in_reward=kl_in_reward))  # type: ignore[arg-type]


def test_advantages_that_need_no_model_ask_none() -> None:
    learner = Answering()
    assert [s.trajectory_id for s in credited([PAIR], learner).selection.samples] == ["g/0", "g/1"]
    assert learner.asked == []


def test_rows_carry_the_temperature_that_the_stage_sampled_at() -> None:
    rows = credited([PAIR], Answering(), temperature=0.5).selection.samples
    assert {row.temperature for row in rows} == {0.5}


def test_kl_in_the_reward_is_measured_at_the_stages_temperature_over_sampled_tokens() -> None:
    """Of every scored attempt, silent groups' too: their reward is not silent any more."""
    learner = Answering()
    lost = replace(attempt(1.0, name="g/2"), failure=FAILURE)
    kl = KLConfig(coefficient=0.5, estimator="k1", place="reward")
    found = credited([group(*PAIR.trajectories, lost), SILENT], learner, kl_in_reward=0.5, temperature=0.5, kl=kl)
    assert learner.asked == [(who, ["g/0", "g/1", "s/0", "s/1"], {0.5}) for who in ("policy", "reference")]
    assert found.kl == pytest.approx((Answering.POLICY - Answering.REFERENCE) * 0.5)
    # A nat a token, at half a point: the second attempt, of one token more, pays half a point more.
    assert [float(s.advantages[2]) for s in found.selection.samples] == [0.75, -0.75]


def test_kl_in_the_loss_asks_the_reference_about_rows_that_are_learned_from() -> None:
    learner = Answering()
    found = credited([PAIR, SILENT], learner, kl=KLConfig(place="loss"))
    assert learner.asked == [("reference", ["g/0", "g/1"], {1.0})]
    for row in found.selection.samples:
        assert row.reference_logprobs is not None
        assert row.reference_logprobs[row.trainable].tolist() == [Answering.REFERENCE] * row.num_loss_tokens
    assert found.kl is None


def test_critic_is_asked_once_and_told_what_to_predict() -> None:
    learner = Answering()
    found = credited([PAIR], learner, "gae", critic=CriticConfig())
    assert [question for question, *_ in learner.asked] == ["values"]
    for row, outcome in zip(found.selection.samples, (1.0, 0.0), strict=True):
        assert row.values is not None
        assert row.returns is not None
        assert row.values[row.trainable].tolist() == [Answering.VALUE] * row.num_loss_tokens
        assert row.returns[row.trainable] == pytest.approx([outcome] * row.num_loss_tokens)
