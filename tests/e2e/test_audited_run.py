"""A run against a verifier with a hole: the audit sees it while it goes on, stops it, and the fix says what to undo."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from posttrain.core.errors import StoppedByRuleError
from posttrain.core.types import Limits, Task, Verdict
from posttrain.domains.function import FunctionDomain
from posttrain.gate.review import latest
from posttrain.observe.audit import audit
from posttrain.observe.review import review_command_stats, review_label, review_list
from posttrain.run.config import RunConfig
from posttrain.run.load import parse
from posttrain.run.replay import replay
from posttrain.run.reverify import reverify
from posttrain.run.reverify_command import told
from posttrain.run.train import resume_run, start_run
from posttrain.store.metrics import read_metrics
from posttrain.store.review import Label, ReviewStore
from posttrain.store.run_directory import RunDirectory
from posttrain.store.trajectories import TrajectoryStore

LATE = {"name": "suspect", "metric": "suspect/*", "when": "above", "threshold": 0.0, "after_step": 2, "why": "a cheat"}
PAUSE = {"name": "exploited", "metric": "suspect_of_paid/*", "when": "above", "threshold": 0.5, "for_steps": 4}
RULES = [{**LATE, "action": "quarantine"}, {**PAUSE, "action": "pause"}]


class Quiet:
    def __init__(self) -> None:
        self.notes: list[str] = []

    def stage(self, name: str, total_steps: int | None, done: int = 0) -> None: ...

    def phase(self, name: str, total: int | None = None) -> None: ...

    def advance(self, amount: int = 1) -> None: ...

    def step(self, step: int, values: Mapping[str, float]) -> None: ...

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)


@pytest.fixture(autouse=True)
def quick_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here cuts the power."""
    monkeypatch.setattr("os.fsync", lambda _: None)


def _hole(task: Task, reply: str) -> Verdict:
    """Pays half of what an untrained model says, and sees itself that it should not."""
    paid = len(reply) % 2 == 0
    return Verdict.correct(answer=reply, flags=("several_answers",)) if paid else Verdict.incorrect("odd", answer=reply)


def _mended(task: Task, reply: str) -> Verdict:
    return Verdict.correct(answer=reply) if reply.startswith("7") else Verdict.incorrect("no seven", answer=reply)


def _honest(task: Task, reply: str) -> Verdict:
    return Verdict.correct(answer=reply) if len(reply) % 2 == 0 else Verdict.incorrect("odd", answer=reply)


def domain(reward: Any, version: str, name: str = "holes") -> dict[str, FunctionDomain]:
    rows = [(f"Say {number}.", "") for number in range(200)]
    made = FunctionDomain(rows, reward, name=name, limits=Limits(max_new_tokens=4), version=version)
    return {name: made}


def configuration(names: tuple[str, ...] = ("holes",), **stage: Any) -> RunConfig:
    rl = {"kind": "rl", "steps": 6, "groups_per_step": 4, "group_size": 4, "optimizer": {"learning_rate": 1e-3}}
    return parse(
        {
            "model": "seedling-random",
            "domains": {name: {} for name in names},
            "stages": [{**rl, "rules": RULES, "evaluate": False, **stage}],
            "evaluation": {"tasks": 4, "samples": 1},
            "evaluate_base": False,
            "engine": {"processes": 0},
            "learner": {"processes": 0, "dtype": "float32"},
            "checkpoints": {"every_steps": 1, "keep": 9},
        }
    )


def test_the_audit_stops_a_run_on_a_hole_and_the_fix_lists_what_learned_from_it(tmp_path: Path) -> None:
    run, watch = tmp_path / "run", Quiet()
    with pytest.raises(StoppedByRuleError, match="every domain is paused"):
        start_run(configuration(), run, watch, domain(_hole, "1"))
    assert "suspect/holes was" in watch.notes[0]
    assert watch.notes[0].endswith("above 0: a cheat")
    records = read_metrics(run / "metrics.jsonl").records
    assert [record.step for record in records] == [1, 2, 3, 4]
    assert [record.values["quarantined"] > 0 for record in records] == [False, False, True, True]

    found = audit(RunDirectory.open(run))
    assert [alarm.action for alarm in found.alarms] == ["quarantine", "pause"]
    (count,) = found.detectors
    assert (count.detector, count.row, count.paid) == ("several_answers", 13, count.attempts)
    assert 0 < count.quarantined < count.attempts
    assert {example.detector for example in found.examples} == {"several_answers"}

    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and "reverified" not in path.parts}
    again = reverify(run, None, Quiet(), domain(_mended, "2"))
    assert again.affected_steps == (("rl", 1), ("rl", 2))
    assert {change.new for change in again.changes} <= {"correct", "incorrect"}
    assert again.checkpoint is None, "none is kept from before the first step"
    assert {path: path.read_bytes() for path in before} == before
    assert "2 training steps learned" in told(again, run)["advice"]

    # The mended verifier is another one: the pause is void, and the run goes on to its end.
    resume_run(run, watch, domain(_mended, "2"))
    assert [record.step for record in read_metrics(run / "metrics.jsonl").records] == [1, 2, 3, 4, 5, 6]


def test_a_paused_domain_stays_paused_while_its_verifier_is_the_same(tmp_path: Path) -> None:
    both = {**domain(_hole, "1"), **domain(_honest, "1", "honest")}
    start_run(configuration(("holes", "honest")), tmp_path / "run", Quiet(), both)
    records = read_metrics(tmp_path / "run" / "metrics.jsonl").records
    assert [bool(record.values.get("paused/holes")) for record in records] == [False] * 4 + [True] * 2
    store = TrajectoryStore(tmp_path / "run" / "trajectories")
    domains = [{row.domain for row in store.read(position)} for position in store.positions()]
    assert domains == [{"holes", "honest"}] * 4 + [{"honest"}] * 2
    assert audit(RunDirectory.open(tmp_path / "run")).domains[0].paused_since == 4


@pytest.mark.parametrize("max_staleness", [0, 1])
def test_a_resumed_run_pauses_and_quarantines_as_the_other_did(tmp_path: Path, max_staleness: int) -> None:
    both = {**domain(_hole, "1"), **domain(_honest, "1", "honest")}
    config = configuration(("holes", "honest"), max_staleness=max_staleness, steps=8)

    class Killed(BaseException):
        pass

    class Killer(Quiet):
        def step(self, step: int, values: Mapping[str, float]) -> None:
            if step == 5:
                raise Killed

    start_run(config, tmp_path / "whole", Quiet(), both)
    with pytest.raises(Killed):
        start_run(config, tmp_path / "killed", Killer(), both)
    resume_run(tmp_path / "killed", Quiet(), both)
    whole, killed = (list(TrajectoryStore(tmp_path / name / "trajectories").rows()) for name in ("whole", "killed"))
    # With a bound above 0 a resumed run samples what was under way with newer weights: of it, the tasks are the same.
    assert [(row.trajectory_id, row.task_id) for row in whole] == [(row.trajectory_id, row.task_id) for row in killed]
    if max_staleness == 0:
        assert [(r.reply, r.quarantine, r.detections) for r in whole] == [
            (r.reply, r.quarantine, r.detections) for r in killed
        ]
    assert any(row.quarantine for row in whole)
    assert {row.domain for row in whole[-16:]} == {"honest"}


def test_a_quarantined_step_is_replayed_as_it_was_learned(tmp_path: Path) -> None:
    both = {**domain(_hole, "1"), **domain(_honest, "1", "honest")}
    start_run(configuration(("holes", "honest")), tmp_path / "run", Quiet(), both)
    assert replay(tmp_path / "run", 4, None, Quiet(), both).same is True


def test_peoples_labels_pause_a_domain_at_the_next_step(tmp_path: Path) -> None:
    run = tmp_path / "run"
    start_run(configuration(steps=2, rules=[]), run, Quiet(), domain(_honest, "1"))
    directory = RunDirectory.open(run)
    for item in review_list(directory, "ann", 100):
        review_label(directory, item.item.trajectory_id, Label.INCORRECT, "not what was asked", "ann")
    (found,) = review_command_stats(directory).verifiers
    assert found.precision is not None
    assert found.precision.ci95[1] < 0.9

    class Labeller(Quiet):
        """Labels what the first step gave while the run goes on."""

        def step(self, step: int, values: Mapping[str, float]) -> None:
            if step == 1:
                going = RunDirectory.open(tmp_path / "going")
                for item in review_list(going, "bob", 100):
                    review_label(going, item.item.trajectory_id, Label.INCORRECT, "", "bob")

    watch = Labeller()
    with pytest.raises(StoppedByRuleError, match="every domain is paused"):
        start_run(configuration(steps=5, rules=[]), tmp_path / "going", watch, domain(_honest, "1"))
    records = read_metrics(tmp_path / "going" / "metrics.jsonl").records
    assert [record.step for record in records] == [1, 2]
    assert records[1].values["audit/precision/holes"] == 0.0
    assert records[1].values["audit/precision_margin/holes"] < 0.0
    assert records[1].values["audit/agreement/holes/outcome"] < 1.0
    assert any("less precise than its floor" in note for note in watch.notes)
    assert latest(ReviewStore(RunDirectory.open(tmp_path / "going").review).labels())


def test_reverification_goes_on_where_it_was_and_asks_again_what_had_no_verdict(tmp_path: Path) -> None:
    run = tmp_path / "run"
    start_run(configuration(steps=2, rules=[]), run, Quiet(), domain(_honest, "1"))
    assert reverify(run, None, Quiet(), domain(_honest, "1")).unchanged == ("holes",)
    asked: list[str] = []
    broken = True

    def counted(task: Task, reply: str) -> Verdict:
        asked.append(reply)
        return Verdict.none("it failed") if broken and len(asked) == 20 else Verdict.incorrect("never")

    first = reverify(run, None, Quiet(), domain(counted, "2"))
    assert (len(asked), first.domains[0].attempts, first.domains[0].no_verdict) == (32, 32, 1)
    broken = False
    second = reverify(run, None, Quiet(), domain(counted, "2"))
    assert (len(asked), second.domains[0].no_verdict) == (48, 0), "the step with the failure alone is done again"
    reverify(run, None, Quiet(), domain(counted, "2"))
    assert len(asked) == 48
    assert {change.old for change in second.changes} == {"correct"}
