"""The public Python API: `posttrain.train`, `posttrain.evaluate` and the names beside them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import posttrain
from posttrain.core.errors import UserError
from posttrain.core.types import Json, Message, Role, Split, Task
from posttrain.domains.function import FunctionDomain
from posttrain.run.config import EngineConfig, LearnerConfig
from posttrain.run.train import TrainResult
from posttrain.store.trajectories import TrajectoryStore

INSIDE = EngineConfig(processes=0, options={"dtype": "float32"})
TASKS = [(f"Write the letter {letter}.", letter) for letter in "abcdefghijkl"]


def share(task: Task, reply: str) -> float:
    """How much of the reply is vowels; differs between replies of random weights."""
    return sum(letter in "aeiou" for letter in reply) / max(1, len(reply))


def test_public_names_are_sorted_and_all_there() -> None:
    assert list(posttrain.__all__) == sorted(posttrain.__all__)
    for name in posttrain.__all__:
        assert getattr(posttrain, name).__name__ == name


def test_unknown_name_raises() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'trian'"):
        posttrain.trian  # noqa: B018


def train(run: Path, tasks: Iterable[tuple[str, Json] | Task], **options: Any) -> TrainResult:
    return posttrain.train(
        "seedling-random",
        tasks,
        share,
        groups_per_step=2,
        group_size=2,
        max_new_tokens=6,
        evaluation_tasks=2,
        run=run,
        engine=EngineConfig(processes=0),
        learner=LearnerConfig(processes=0, dtype="float32"),
        **options,
    )


def test_training_leaves_a_run_and_a_model(tmp_path: Path) -> None:
    result = train(tmp_path / "run", TASKS, steps=2, sft_steps=1)
    assert result.run == tmp_path / "run"
    assert result.steps == 3
    assert list(result.reports) == ["base", "sft", "rl"]
    assert result.reports["rl"].domains.keys() == {"tasks"}
    assert (result.run / "model" / "config.json").is_file()
    with pytest.raises(UserError, match="run"):
        train(tmp_path / "run", TASKS, steps=2, sft_steps=1)
    assert train(tmp_path / "run", TASKS, resume=True).reports == result.reports


def test_tasks_may_have_levels_and_no_demonstrations(tmp_path: Path) -> None:
    tasks = [
        Task("any", (Message(Role.USER, f"Write {letter}."),), {"letter": letter}, Split.TRAIN, 0, 0, 1 + number % 2)
        for number, letter in enumerate("abcdefghijklmnop")
    ]
    result = train(tmp_path / "run", tasks, steps=2)
    assert result.reports["rl"].domains["tasks"].n == 2
    assert {row.level for row in TrajectoryStore(tmp_path / "run" / "trajectories").rows()} == {1, 2}


def test_evaluation_needs_no_run() -> None:
    domain = FunctionDomain(TASKS, share, name="letters", limits=posttrain.Limits(max_new_tokens=4))
    report = posttrain.evaluate("seedling-random", {"letters": domain}, tasks=2, samples=2, engine=INSIDE)
    assert isinstance(report, posttrain.EvalReport)
    score = report.domains["letters"]
    assert (score.n, score.samples) == (2, 2)
    assert 0.0 <= score.pass_at_1 <= 1.0


def test_a_running_event_loop_is_no_obstacle() -> None:
    async def cell() -> posttrain.EvalReport:
        domain = FunctionDomain(TASKS, share, name="letters", limits=posttrain.Limits(max_new_tokens=1))
        return posttrain.evaluate("seedling-random", {"letters": domain}, tasks=1, samples=1, engine=INSIDE)

    assert asyncio.run(cell()).domains["letters"].n == 1
