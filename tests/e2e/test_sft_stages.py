"""Two SFT stages through the real loop, chats of a file and then what the policy has solved: killed and resumed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from posttrain.core.errors import UserError
from posttrain.core.types import Limits
from posttrain.domains.function import FunctionDomain
from posttrain.gate.evaluate import EvaluationOptions
from posttrain.run.config import CheckpointConfig, DomainConfig, EngineConfig, LearnerConfig, RunConfig, SftStage
from posttrain.run.train import TrainResult, resume_run, start_run
from posttrain.store.metrics import MetricsRecord, read_metrics
from posttrain.store.position import Position
from posttrain.store.reports import read_reports
from posttrain.store.trajectories import TrajectoryStore

OPTIMIZER = {"learning_rate": 5e-3}


class Killed(BaseException):
    """What ends a run in the middle."""


class Watch:
    """An observer that ends the run at one step of one stage, or at one attempt of a phase."""

    def __init__(self, stage: str = "", step: int = 0, phase: str = "", attempts: int = 0) -> None:
        self.notes: list[str] = []
        self._end, self._end_phase = (stage, step), (phase, attempts)
        self._stage, self._phase, self._advanced = "", "", 0

    def stage(self, name: str, total_steps: int | None, done: int = 0) -> None:
        self._stage = name

    def phase(self, name: str, total: int | None = None) -> None:
        self._phase, self._advanced = name, 0

    def advance(self, amount: int = 1) -> None:
        self._advanced += amount
        if (self._phase, self._advanced) == self._end_phase:
            raise Killed

    def step(self, step: int, values: Mapping[str, float]) -> None:
        if (self._stage, step) == self._end:
            raise Killed

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)


@pytest.fixture(autouse=True)
def quick_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here cuts the power."""
    monkeypatch.setattr("os.fsync", lambda _: None)


def greetings() -> FunctionDomain:
    rows = [(f"Greet {number}.", "hi") for number in range(60)]
    return FunctionDomain(rows, lambda task, reply: reply == "hi", name="greetings", limits=Limits(max_new_tokens=4))


def write_chats(path: Path) -> Path:
    turns = [("user", "Greet me."), ("assistant", "hi"), ("tool", "ok"), ("assistant", "bye")]
    chats = [{"messages": [{"role": role, "content": f"{text}"} for role, text in turns]}] * 4
    pairs = [{"prompt": f"Greet {number}!", "completion": "hi"} for number in range(120)]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in [*chats, *pairs]) + "no row\n")
    return path


def configuration(chats: Path) -> RunConfig:
    first = SftStage(
        kind="sft",
        name="chats",
        demonstrations=0,
        data=[str(chats)],
        max_steps=6,
        demonstrations_per_step=16,
        validation=8,
        validate_every_steps=4,
        evaluate_every_steps=3,
        optimizer=OPTIMIZER,
        evaluate=False,
    )
    second = SftStage(
        kind="sft",
        name="own",
        source="self",
        demonstrations=8,
        attempts=4,
        max_steps=4,
        demonstrations_per_step=4,
        optimizer=OPTIMIZER,
        evaluate=False,
    )
    return RunConfig(
        model="seedling-random",
        domains={"greetings": DomainConfig()},
        stages=[first, second],
        evaluation=EvaluationOptions(tasks=4, samples=2),
        evaluate_base=False,
        engine=EngineConfig(processes=0, options={"dtype": "float32"}),
        learner=LearnerConfig(processes=0, dtype="float32"),
        checkpoints=CheckpointConfig(every_steps=2),
    )


def train(folder: Path, chats: Path, watch: Watch | None = None) -> TrainResult:
    return start_run(configuration(chats), folder, watch or Watch(), {"greetings": greetings()})


def resume(folder: Path, watch: Watch | None = None) -> TrainResult:
    return resume_run(folder, watch or Watch(), {"greetings": greetings()})


def records(run: Path) -> dict[tuple[str, int], MetricsRecord]:
    return {(record.stage, record.step): record for record in read_metrics(run / "metrics.jsonl").records}


@pytest.fixture(scope="module")
def chats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_chats(tmp_path_factory.mktemp("data") / "chats.jsonl")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, chats: Path) -> tuple[Path, Watch]:
    watch, run = Watch(), tmp_path_factory.mktemp("runs") / "whole"
    train(run, chats, watch)
    return run, watch


def test_chats_are_learned_and_then_what_the_policy_solves(whole: tuple[Path, Watch]) -> None:
    run, watch = whole
    found = records(run)
    assert found["chats", 1].values["bad_rows"] == 1.0
    assert "bad_rows" not in found["chats", 2].values
    assert found["chats", 6].values["loss"] < found["chats", 1].values["loss"] / 2
    assert found["own", 1].values["solved/greetings"] > 0.05
    assert any("chats leaves out 1 of 125 rows" in note for note in watch.notes)
    assert any(note.startswith("own solved ") for note in watch.notes)


def test_validation_is_measured_when_it_is_due_and_at_the_end(whole: tuple[Path, Watch]) -> None:
    losses = {step: "validation_loss" in record.values for (_, step), record in records(whole[0]).items() if step > 4}
    assert losses == {5: False, 6: True}
    found = records(whole[0])
    assert found["chats", 6].values["validation_loss"] < found["chats", 4].values["validation_loss"]


def test_the_suite_is_scored_while_the_stage_goes_on(whole: tuple[Path, Watch]) -> None:
    (report,) = read_reports(whole[0] / "evals")
    assert (report.label, report.version) == ("chats-000003", 1), "not the weights of the third step"
    assert TrajectoryStore(whole[0] / "evals").positions() == [Position(1, 3)]


@pytest.mark.parametrize(
    "watch",
    [
        Watch("chats", 5),
        Watch("own", 3),
        Watch(phase="sampling demonstrations", attempts=20),
        Watch(phase="evaluating", attempts=4),
    ],
    ids=["in_the_chats", "in_its_own", "while_sampling", "while_evaluating"],
)
def test_killed_and_resumed_stages_end_with_the_same_parameters(
    tmp_path: Path, chats: Path, whole: tuple[Path, Watch], watch: Watch
) -> None:
    run = tmp_path / "killed"
    with pytest.raises(Killed):
        train(run, chats, watch)
    kept = {path.name: path.stat().st_mtime_ns for path in (run / "demonstrations").glob("*.parquet")}
    resume(run)
    after = {path.name: path.stat().st_mtime_ns for path in (run / "demonstrations").glob("*.parquet")}
    assert kept.items() <= after.items(), "attempts that were there have been sampled again"
    ours, theirs = (load_file(path / "model" / "model.safetensors") for path in (run, whole[0]))
    assert ours.keys() == theirs.keys()
    assert all((ours[name] == theirs[name]).all() for name in ours)
    assert [one.values.get("loss") for one in records(run).values()] == [
        one.values.get("loss") for one in records(whole[0]).values()
    ]


def test_a_resumed_run_refuses_files_that_have_changed(tmp_path: Path) -> None:
    chats = write_chats(tmp_path / "chats.jsonl")
    with pytest.raises(Killed):
        train(tmp_path / "run", chats, Watch("chats", 5))
    lines = chats.read_text().splitlines()
    chats.write_text("\n".join([*lines[:-2], json.dumps({"prompt": "Greet 119!", "completion": "ho"})]))
    with pytest.raises(UserError, match="finds others now"):
        resume(tmp_path / "run")
