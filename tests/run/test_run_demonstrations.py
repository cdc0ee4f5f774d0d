from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.run.sft_parts import (
    additions,
    data_stage,
    make_parts,
    make_renderer,
    pairs,
    replying,
    sft_stage,
    write_rows,
)

from posttrain.core.errors import ConfigError, UserError
from posttrain.core.types import Sample
from posttrain.models.catalog import resolve
from posttrain.rollout.render import ChatRenderer
from posttrain.run.config import PlateauConfig, SftStage
from posttrain.run.demonstrations import check_sources, gather, num_held_out
from posttrain.run.load import load
from posttrain.run.parts import Parts, Rollouts, make_domains, make_suite
from posttrain.run.rows import Rows
from posttrain.run.sft import Plateau, SftLoop

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.fixture(scope="module")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> ChatRenderer:
    return make_renderer(tmp_path_factory.mktemp("seedling"))


@pytest.fixture(autouse=True)
def quick_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda _: None)


def gathered(parts: Parts, stage: SftStage, folder: Path, *, resumed: bool = False) -> Rows:
    return asyncio.run(gather(stage, 0, parts, folder, resumed=resumed))


def digest(samples: Sequence[Sample]) -> str:
    state = hashlib.blake2b(digest_size=8)
    for one in samples:
        state.update(f"{one.trajectory_id}{one.domain}{one.group_id}".encode())
        state.update(one.tokens.tobytes() + one.trainable.tobytes() + one.loss_weights.tobytes())
    return state.hexdigest()


@pytest.mark.parametrize(
    ("config_name", "stage_name", "num_validation", "expected"),
    [
        ("seedling", "pretrain", 0, "317fdf6629a6ce88"),
        ("seedling", "sft", 64, "5ea3b4750a1fc0a9"),
        ("quickstart", "sft", 64, "6607f1593e6cfe9e"),
        ("control", "sft", 64, "6607f1593e6cfe9e"),
    ],
)
def test_the_published_runs_learn_from_the_very_same_rows_step_by_step(
    tmp_path: Path, config_name: str, stage_name: str, num_validation: int, expected: str
) -> None:
    """Digests of the first 60 steps, with seedling's tokens, so that nobody changes a published run's rows unawares; of
    seedling's stages with a tenth of the demonstrations, which take long to make."""
    fewer = [f"stages.{stage_name}.demonstrations=60"] if config_name == "seedling" else []
    config = load(CONFIGS / f"{config_name}.toml", ["evaluation.tasks=8", *fewer])
    stage = next(stage for stage in config.stages if stage.name == stage_name)
    assert isinstance(stage, SftStage)
    parts, *_ = make_parts(stage, ChatRenderer.load(resolve("seedling-random"), config.system_prompt))
    domains = make_domains(config.domains)
    rollouts = Rollouts(domains, parts.rollouts.renderer, None, parts.rollouts.engine, parts.rollouts.roller)
    nobody: Any = None
    parts = Parts(config, rollouts, make_suite(config, domains), nobody, parts.observer, parts.weights)
    loop = loop_of(parts, stage, gathered(parts, stage, tmp_path))
    assert len(loop.rows.validation) == num_validation
    assert digest([sample for step in range(60) for sample in loop._batch(step)]) == expected


def loop_of(parts: Parts, stage: SftStage, rows: Rows) -> SftLoop:
    nobody: Any = None
    return SftLoop(stage, parts, nobody, rows, first_step=0, plateau=Plateau(), on_evaluation=nobody)


def test_sources_add_up_and_validation_is_spread_over_them(tmp_path: Path, renderer: ChatRenderer) -> None:
    file = write_rows(tmp_path / "a.jsonl", pairs(10))
    stage = sft_stage(data=[str(file)], validation=5)
    parts, *_ = make_parts(stage, renderer)
    rows = gathered(parts, stage, tmp_path / "run")
    assert [one.domain for one in rows.training] == ["additions"] * 8 + ["data"] * 7
    assert [one.domain for one in rows.validation] == ["additions"] * 3 + ["data"] * 3


@pytest.mark.parametrize(
    ("options", "num_domains", "expected"),
    [
        ({}, 4, 0),
        ({"validation": 9}, 4, 3),
        ({"validation": 9, "data": ["a"]}, 2, 3),
        ({"validation": 9, "data": ["a"], "demonstrations": 0}, 4, 9),
        ({"plateau": PlateauConfig(validation_demonstrations=64)}, 4, 16),
    ],
)
def test_every_source_holds_out_its_share(options: dict[str, Any], num_domains: int, expected: int) -> None:
    assert num_held_out(sft_stage(**options), num_domains) == expected


def test_data_alone_asks_no_domain_for_demonstrations(tmp_path: Path, renderer: ChatRenderer) -> None:
    stage = data_stage(write_rows(tmp_path / "a.jsonl", pairs(3)))
    parts, engine, _ = make_parts(stage, renderer)
    assert {one.domain for one in gathered(parts, stage, tmp_path / "run").training} == {"data"}
    assert engine.requests == []


def test_notes_reach_the_observer(tmp_path: Path, renderer: ChatRenderer) -> None:
    stage = data_stage(write_rows(tmp_path / "a.jsonl", [*pairs(3), "x"]), max_bad_share=0.5, name="chats")
    parts, _, listener = make_parts(stage, renderer)
    gathered(parts, stage, tmp_path / "run")
    assert listener.notes[0].startswith("chats leaves out 1 of 4 rows (25.00%)")


def test_a_resumed_stage_refuses_rows_that_have_changed(tmp_path: Path, renderer: ChatRenderer) -> None:
    file = write_rows(tmp_path / "a.jsonl", pairs(3))
    stage = data_stage(file)
    parts, *_ = make_parts(stage, renderer)
    first = gathered(parts, stage, tmp_path / "run")
    again = gathered(parts, stage, tmp_path / "run", resumed=True)
    assert digest(first.training) == digest(again.training)
    write_rows(file, [*pairs(2), {"prompt": "Say 2.", "completion": "3!"}])
    with pytest.raises(UserError, match="began with 3 rows to learn from and 0 to validate on, and finds others now"):
        gathered(parts, stage, tmp_path / "run", resumed=True)


def test_a_stage_whose_held_out_tasks_nobody_solved_is_refused(tmp_path: Path, renderer: ChatRenderer) -> None:
    stage = sft_stage(source="self", attempts=1, validation=1)
    parts, *_ = make_parts(stage, renderer)
    held_out = gathered(parts, sft_stage(validation=1), tmp_path / "domains").validation[0].trajectory_id
    script = replying(renderer, lambda task, _: "no" if held_out.endswith(task.task_id) else str(task.hidden["answer"]))
    parts, *_ = make_parts(stage, renderer, script)
    with pytest.raises(UserError, match="not one of its held-out tasks was solved"):
        gathered(parts, stage, tmp_path / "self")


def test_what_is_wrong_is_found_before_a_model_is_loaded(tmp_path: Path, renderer: ChatRenderer) -> None:
    def refused(stage: SftStage) -> str:
        parts, *_ = make_parts(stage, renderer)
        with pytest.raises(UserError) as caught:
            check_sources(stage, parts.config, parts.rollouts.domains)
        return str(caught.value)

    assert "no file 'none.jsonl'" in refused(data_stage("none.jsonl"))
    assert "cannot use 1 of 1 rows" in refused(data_stage(write_rows(tmp_path / "a.jsonl", ["x"])))
    for source in ("domains", "self"):
        assert "distinct training tasks" in refused(sft_stage(demonstrations=1000, source=source))


def test_a_domain_without_demonstrations_says_what_can_be_done(renderer: ChatRenderer) -> None:
    stage = sft_stage()
    parts, *_ = make_parts(stage, renderer)
    silent = {"additions": type(additions())(additions().tasks, lambda task, reply: 1.0, name="additions")}
    with pytest.raises(ConfigError, match='source = "self"'):
        check_sources(stage, parts.config, silent)
    check_sources(sft_stage(source="self"), parts.config, silent)
