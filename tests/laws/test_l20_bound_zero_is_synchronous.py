"""L19 and L20 in the loop: what is generated with which weights, for bounds zero and above."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from posttrain.core.protocols import StepMetrics
from posttrain.core.types import (
    Group,
    Limits,
    Message,
    Reward,
    Role,
    Sample,
    Split,
    StopReason,
    Task,
    Trajectory,
    Verdict,
)
from posttrain.rewards.spec import RewardSpec
from posttrain.run.config import DomainConfig
from posttrain.run.health import Health
from posttrain.run.loop import RlLoop
from posttrain.run.rl_stage import RlStage
from posttrain.run.steering import NEUTRAL
from posttrain.store.metrics import MetricsRecord
from posttrain.store.run_directory import RunDirectory

STEPS = 4


class Recording:
    """Roller, learner, recorder and observer in one: writes down who did what with which version."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.version = 0
        self.checkpoints: dict[int, Any] = {}
        self.staleness: list[float] = []
        self.given = 0

    async def roll(self, plans: Sequence[Any], *, on_done: Any) -> list[Group]:
        version = self.version
        self.events.append(f"roll {plans[0].group_id[3:8]} with {version}")
        await asyncio.sleep(0)
        return [self._group(plan, version) for plan in plans]

    def _group(self, plan: Any, version: int) -> Group:
        trajectories = tuple(
            Trajectory(
                trajectory_id=f"{plan.group_id}/{sibling}",
                task=plan.task,
                group_id=plan.group_id,
                sibling=sibling,
                tokens=np.asarray([1, 2], dtype=np.int32),
                sampled=np.asarray([False, True]),
                behavior_logprobs=np.asarray([0.0, -1.0], dtype=np.float32),
                versions=np.asarray([-1, version], dtype=np.int32),
                turns=(),
                reply="x",
                stop=StopReason.STOP,
                verdict=Verdict.correct() if sibling else Verdict.incorrect("another number"),
                reward=Reward(float(sibling)),
            )
            for sibling in range(2)
        )
        return Group(plan.group_id, plan.task, trajectories)

    async def learn(self, samples: Sequence[Sample], controls: Any) -> StepMetrics:
        for _ in range(50):  # turns of the event loop, not seconds: rolling is faster than learning
            await asyncio.sleep(0)
        self.events.append(f"learn with {self.version}")
        return StepMetrics(0.0, 0.0, 0.0, len(samples), len(samples), {}, 0.0)

    async def publish(self, version: int) -> None:
        self.version = version
        self.events.append(f"publish {version}")

    def next(self) -> Task:
        self.given += 1
        return Task("d", (Message(Role.USER, f"{self.given}"),), {}, Split.TRAIN, 0, self.given, 1, Limits())

    def state(self) -> int:
        return self.given

    def record(self, step: int, values: Mapping[str, float]) -> MetricsRecord:
        self.staleness.append(values["staleness_max"])
        return MetricsRecord(0, "rl", step, 0.0, values)

    async def checkpoint(self, step: int, *, mixture: Any, steering: Any, good: bool) -> None:
        self.checkpoints[step] = mixture


async def no_evaluation(step: int) -> None:
    raise AssertionError(f"nobody asked for an evaluation after step {step}")


def run(folder: Path, max_staleness: int) -> Recording:
    recording = Recording()
    quiet = SimpleNamespace(phase=lambda *a, **k: None, advance=lambda *a: None, step=lambda *a: None)
    parts = _Parts(recording, quiet)
    recorder = SimpleNamespace(
        state=SimpleNamespace(step=0, stage=0, lifted={}),
        directory=RunDirectory(folder),
        logs=folder,
        history=list,
        weights=lambda *a: None,
        trajectories=lambda *a: None,
        step=recording.record,
        checkpoint_due=lambda step, last: True,
        checkpoint=recording.checkpoint,
    )
    mixture = SimpleNamespace(
        next=recording.next, observe=lambda group: None, state=recording.state, pause=lambda paused: None
    )
    stage = RlStage(kind="rl", steps=STEPS, groups_per_step=2, group_size=2, max_staleness=max_staleness)
    asyncio.run(RlLoop(stage, parts, recorder, mixture, Health([]), NEUTRAL, no_evaluation).run())  # type: ignore[arg-type]
    return recording


class _Parts:
    def __init__(self, recording: Recording, observer: Any) -> None:
        self.recording = recording
        self.observer = observer
        self.config = SimpleNamespace(seed=0, domains={"d": DomainConfig()}, reward_of=lambda domain: RewardSpec())
        self.rollouts = SimpleNamespace(roller=recording, sandbox=None)
        self.learner = SimpleNamespace(step=recording.learn)
        self.weights = Path()

    @property
    def version(self) -> int:
        return self.recording.version

    async def publish(self, version: int) -> None:
        await self.recording.publish(version)


def test_with_bound_zero_each_wave_is_rolled_with_the_weights_of_the_step_before(tmp_path: Path) -> None:
    expected = [
        event
        for step in range(STEPS)
        for event in (f"roll {step:05d} with {step}", f"learn with {step}", f"publish {step + 1}")
    ]
    recording = run(tmp_path, 0)
    assert recording.events == expected
    assert recording.staleness == [0.0] * STEPS


@pytest.mark.parametrize("bound", [1, 2])
def test_with_a_bound_above_zero_rollouts_run_ahead_and_never_beyond_it(tmp_path: Path, bound: int) -> None:
    recording = run(tmp_path, bound)
    assert max(recording.staleness) == bound
    first_learned = recording.events.index("learn with 0")
    assert recording.events.index(f"roll {bound:05d} with 0") < first_learned


@pytest.mark.parametrize("bound", [0, 1, 2])
def test_a_checkpoint_holds_the_mixture_before_the_first_task_that_was_not_learned_from(
    tmp_path: Path, bound: int
) -> None:
    recording = run(tmp_path, bound)
    assert recording.checkpoints == {step: 2 * step for step in range(1, STEPS + 1)}
