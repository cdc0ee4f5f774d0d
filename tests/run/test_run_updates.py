"""One step's samples in one or several updates."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.core.protocols import UNCHANGED, StepControls, StepMetrics
from posttrain.core.types import Sample
from posttrain.run.rl_stage import RlStage
from posttrain.run.steering import NEUTRAL
from posttrain.run.updates import batches, combined, update


def stage(**fields: Any) -> RlStage:
    return RlStage(kind="rl", **{"groups_per_step": 8, **fields})


def samples(num_groups: int, siblings: int = 2) -> list[Sample]:
    row: Any = np.asarray([0.0, 1.0], np.float32)
    return [
        Sample(f"{g}/{s}", 0, str(g), "d", row.astype(np.int32), row > 0, row, row, row, row.astype(np.int32))
        for g in range(num_groups)
        for s in range(siblings)
    ]


def metrics(tokens: int = 1, **values: float) -> StepMetrics:
    return StepMetrics(float(tokens), 1.0, 1e-3, tokens, 2 * tokens, values, 0.5)


class Learning:
    """A learner that only notes what it is given."""

    def __init__(self, kls: Sequence[float] = ()) -> None:
        self.kls = list(kls)
        self.given: list[tuple[int, StepControls]] = []

    async def step(self, batch: Sequence[Sample], controls: StepControls = UNCHANGED) -> StepMetrics:
        self.given.append((len(batch), controls))
        return metrics(mismatch_kl=self.kls.pop(0) if self.kls else 0.0)


def learn(learner: Learning, rows: Sequence[Sample], **fields: Any) -> Any:
    return asyncio.run(update(rows, stage(**fields), NEUTRAL, learner, seed=0, step=3))  # type: ignore[arg-type]


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 9), st.integers(1, 8), st.integers(1, 3))
def test_every_sample_is_learned_from_once_an_epoch_and_groups_stay_whole(groups: int, parts: int, epochs: int) -> None:
    rows = samples(groups)
    plan = batches(rows, stage(updates_per_step=parts, epochs=epochs), seed=1, step=0)
    ids = sorted(sample.trajectory_id for batch in plan for sample in batch)
    assert ids == sorted([sample.trajectory_id for sample in rows] * epochs)
    for batch in plan:
        assert len(batch) % 2 == 0
        assert len({sample.group_id for sample in batch}) == len(batch) // 2


def test_one_update_gets_the_samples_as_they_are() -> None:
    rows = samples(4)
    assert batches(rows, stage(), seed=0, step=0) == [rows]
    assert batches([], stage(updates_per_step=4), seed=0, step=0) == [[]]


def test_later_epochs_have_an_order_of_their_own_that_comes_back() -> None:
    rows = samples(8)
    plan = batches(rows, stage(updates_per_step=2, epochs=2), seed=0, step=5)
    assert [s.group_id for s in plan[0]] == ["0", "0", "1", "1", "2", "2", "3", "3"]
    assert [s.group_id for s in plan[2]] != [s.group_id for s in plan[0]]
    assert batches(rows, stage(updates_per_step=2, epochs=2), seed=0, step=5) == plan
    assert batches(rows, stage(updates_per_step=2, epochs=2), seed=0, step=6) != plan


def test_only_the_first_update_of_a_step_moves_the_schedule() -> None:
    learner = Learning()
    learn(learner, samples(8), updates_per_step=4)
    assert [size for size, _ in learner.given] == [4, 4, 4, 4]
    assert [controls.further_update for _, controls in learner.given] == [False, True, True, True]


def test_a_step_ends_early_once_the_policy_has_moved_too_far() -> None:
    learner = Learning(kls=[0.01, 0.3, 0.0])
    done = learn(learner, samples(8), updates_per_step=4, max_update_kl=0.1)
    assert (done.done, done.planned) == (2, 4)
    assert len(learner.given) == 2


def test_several_updates_make_one_record() -> None:
    one = metrics(3, mismatch_max=1.0, ratio=1.0, empty_step=0.0)
    other = metrics(1, mismatch_max=0.5, ratio=2.0, empty_step=1.0)
    both = combined([one, other])
    assert both.num_loss_tokens == 4
    assert both.wall_s == 1.0
    assert both.values["mismatch_max"] == 1.0
    assert both.values["ratio"] == pytest.approx(1.25)
    assert both.values["empty_step"] == 1.0
    assert both.loss == pytest.approx(2.5)
    assert combined([one]) is one
