from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.run.sft_parts import additions, make_parts, make_renderer, replying, sft_stage

from posttrain.core.errors import StoreError, UserError
from posttrain.core.protocols import GenerateRequest
from posttrain.core.types import Reward, StopReason, Task, Trajectory, Verdict
from posttrain.engines.scripted import Reply
from posttrain.rollout.render import ChatRenderer
from posttrain.run import self_demonstrations
from posttrain.run.config import SftStage
from posttrain.run.domain_demonstrations import training_tasks
from posttrain.run.rows import Rows
from posttrain.run.self_demonstrations import best_verified, self_rows
from posttrain.store.position import Position
from posttrain.store.trajectories import TrajectoryStore
from posttrain.store.trajectory_row import TrajectoryRow

STAGE = sft_stage(source="self", attempts=4, demonstrations=6)
Script = Callable[[GenerateRequest], Reply]


@pytest.fixture(scope="module")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> ChatRenderer:
    return make_renderer(tmp_path_factory.mktemp("seedling"))


@pytest.fixture(autouse=True)
def quick_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda _: None)


def answer(task: Task) -> int:
    return int(task.hidden["answer"])


def sampled_rows(
    folder: Path,
    renderer: ChatRenderer,
    script: Script | None,
    *,
    stage: SftStage = STAGE,
    resumed: bool = False,
    held_out: int = 0,
) -> tuple[Rows, int]:
    """The rows, and how many requests the engine got."""
    parts, engine, _ = make_parts(stage, renderer, script)
    tasks = training_tasks(stage, parts.config, parts.rollouts.domains, held_out)
    store = TrajectoryStore(folder)
    rows = asyncio.run(self_rows(stage, tasks, parts, store, stage_index=2, held_out=held_out, resumed=resumed))
    return rows, sum(len(batch) for batch in engine.requests)


def texts(renderer: ChatRenderer, rows: Rows) -> list[str]:
    return [renderer.text(one.tokens[one.trainable].tolist()) for one in rows.training]


def attempt(sibling: int, *, score: float = 1.0, length: int = 2, stop: StopReason = StopReason.STOP) -> TrajectoryRow:
    tokens = np.arange(3 + length, dtype=np.int32)
    sampled = tokens >= 3
    verdict = Verdict.correct() if score == 1.0 else Verdict.incorrect("wrong")
    task = additions().tasks[0]  # type: ignore[index]
    trajectory = Trajectory(
        f"g/{sibling}",
        task,
        "g",
        sibling,
        tokens,
        sampled,
        np.where(sampled, -1.0, 0.0).astype(np.float32),
        np.where(sampled, 0, -1).astype(np.int32),
        (),
        "",
        stop,
        verdict,
        Reward(score),
    )
    return TrajectoryRow.of(trajectory, Position(0, 1))


def test_the_shortest_correct_attempt_is_best() -> None:
    attempts = [attempt(0, length=5), attempt(1, length=1, score=0.0), attempt(2, length=3), attempt(3, length=4)]
    best = best_verified(attempts, seed=0)
    assert best is not None
    assert best.sibling == 2


def test_an_attempt_without_a_stop_token_or_without_a_right_answer_is_none() -> None:
    assert best_verified([attempt(0, stop=StopReason.MAX_NEW_TOKENS), attempt(1, score=0.0)], seed=0) is None
    assert best_verified([], seed=0) is None


def test_ties_are_drawn_by_the_seed_whatever_the_order() -> None:
    attempts = [attempt(sibling) for sibling in range(4)]
    winners = []
    for seed in range(20):
        best, same = best_verified(attempts, seed), best_verified(attempts[::-1], seed)
        assert best is not None
        assert same is best
        winners.append(best.sibling)
    assert set(winners) == {0, 1, 2, 3}


def spelled(renderer: ChatRenderer, text: str) -> list[int]:
    """Ids of `text` letter by letter, which a tokenizer would not choose, and the stop token."""
    return [*(renderer.reply(letter)[0] for letter in text), renderer.stop_tokens[0]]


def test_the_sampled_ids_are_learned_as_they_are_with_their_stop_token(tmp_path: Path, renderer: ChatRenderer) -> None:
    def script(request: GenerateRequest) -> Reply:
        usual = replying(renderer, lambda task, _: f"Answer: {answer(task)}")(request)
        return Reply(tuple(spelled(renderer, renderer.text(usual.tokens))))

    rows, _ = sampled_rows(tmp_path, renderer, script)
    assert len(rows.training) == 6
    for sample, text in zip(rows.training, texts(renderer, rows), strict=True):
        assert sample.tokens[sample.trainable].tolist() == spelled(renderer, text) != renderer.reply(text)
        assert sample.trainable.tolist() == sorted(sample.trainable.tolist())


def test_each_tasks_best_attempt_is_learned_and_unsolved_tasks_are_counted(
    tmp_path: Path, renderer: ChatRenderer
) -> None:
    def say(task: Task, sibling: int) -> str:
        if answer(task) % 2:
            return ["no", f"no {answer(task)}…", "", "never"][sibling]
        return [f"long {answer(task)}", str(answer(task)), "no", f"so {answer(task)}"][sibling]

    stage = sft_stage(source="self", attempts=4, demonstrations=20)
    rows, num_requests = sampled_rows(tmp_path, renderer, replying(renderer, say), stage=stage)
    assert num_requests == 80
    even = [text for text in texts(renderer, rows) if int(text) % 2 == 0]
    assert texts(renderer, rows) == even
    assert 0 < len(even) < 20
    assert rows.values["unsolved_tasks"] == 20 - len(even)
    assert rows.values["solved/additions"] == len(even) / 20
    assert rows.notes == [f"sft solved {len(even)} of 20 tasks of additions in 4 attempts each"]


def test_held_out_tasks_are_not_trained_on(tmp_path: Path, renderer: ChatRenderer) -> None:
    rows, _ = sampled_rows(tmp_path, renderer, replying(renderer, lambda task, _: str(answer(task))), held_out=2)
    assert len(rows.training) == 6
    assert len(rows.validation) == 2
    assert not {one.trajectory_id for one in rows.training} & {one.trajectory_id for one in rows.validation}


def test_nothing_solved_is_a_sentence(tmp_path: Path, renderer: ChatRenderer) -> None:
    with pytest.raises(UserError, match="not one of 6 tasks was solved and finished in 4 attempts"):
        sampled_rows(tmp_path, renderer, replying(renderer, lambda task, _: "no"))


def test_what_was_sampled_is_read_and_not_sampled_again(tmp_path: Path, renderer: ChatRenderer) -> None:
    script = replying(renderer, lambda task, sibling: f"{'so ' * sibling}{answer(task)}")
    first, _ = sampled_rows(tmp_path, renderer, script)
    again, num_requests = sampled_rows(tmp_path, renderer, None, resumed=True)
    assert num_requests == 0
    assert [one.tokens.tolist() for one in again.training] == [one.tokens.tolist() for one in first.training]
    assert again.values == first.values


def test_sampling_that_was_killed_goes_on_with_the_next_wave(
    tmp_path: Path, renderer: ChatRenderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(self_demonstrations, "TASKS_PER_WAVE", 2)
    script = replying(renderer, lambda task, _: str(answer(task)))
    whole, _ = sampled_rows(tmp_path, renderer, script)
    store = TrajectoryStore(tmp_path)
    assert store.positions() == [Position(2, wave) for wave in (1, 2, 3)]
    (tmp_path / f"{Position(2, 2)}.parquet").unlink()
    again, num_requests = sampled_rows(tmp_path, renderer, script)
    assert num_requests == 8
    assert [one.tokens.tolist() for one in again.training] == [one.tokens.tolist() for one in whole.training]


def test_a_resumed_stage_whose_attempts_are_gone_does_not_sample_other_ones(
    tmp_path: Path, renderer: ChatRenderer
) -> None:
    with pytest.raises(StoreError, match="are gone from the run directory"):
        sampled_rows(tmp_path, renderer, None, resumed=True)
