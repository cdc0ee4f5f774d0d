"""RL stages through the real loop, engine and learner: every kind of state comes back after a kill, bit for bit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from posttrain.core.errors import NonFiniteError, StoppedByRuleError, UserError
from posttrain.core.types import Limits
from posttrain.domains.function import FunctionDomain
from posttrain.run.config import RunConfig
from posttrain.run.load import parse
from posttrain.run.replay import replay
from posttrain.run.train import TrainResult, resume_run, start_run
from posttrain.store.metrics import MetricsRecord, read_metrics
from posttrain.store.reports import read_reports

PPO: dict[str, Any] = {"preset": "ppo", "updates_per_step": 2, "epochs": 2}
STEERED: dict[str, Any] = {
    "preset": "grpo",
    "kl": {"coefficient": 0.1, "target": 1e-4, "refresh_every_steps": 2},
    "entropy": {"coefficient": 0.01, "target": 3.0},
    "refill_rounds": 1,
    "updates_per_step": 2,
    "max_update_kl": 10.0,
}
IN_REWARD: dict[str, Any] = {"preset": "reinforce_plus_plus", "kl": {"target": 0.5}, "evaluate_every_steps": 3}
RETURNING: dict[str, Any] = {
    "rules": [
        {"name": "back", "metric": "num_attempts", "when": "above", "threshold": 1.0, "after_step": 3}
        | {"cooldown_steps": 0, "action": "roll_back"}
    ],
    "max_roll_backs": 1,
}


class Killed(BaseException):
    """What ends a run in the middle."""


class Watch:
    """An observer that ends the run once `steps` steps were told."""

    def __init__(self, steps: int = 0) -> None:
        self.notes: list[str] = []
        self._left = steps

    def stage(self, name: str, total_steps: int | None, done: int = 0) -> None: ...

    def phase(self, name: str, total: int | None = None) -> None: ...

    def advance(self, amount: int = 1) -> None: ...

    def step(self, step: int, values: Mapping[str, float]) -> None:
        self._left -= 1
        if self._left == 0:
            raise Killed

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)


@pytest.fixture(autouse=True)
def quick_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here cuts the power."""
    monkeypatch.setattr("os.fsync", lambda _: None)


def coins() -> dict[str, FunctionDomain]:
    """About half of what an untrained model says has an even length, so that most groups have a signal."""
    rows = [(f"Say {number}.", "") for number in range(200)]
    reward = lambda task, reply: len(reply) % 2 == 0  # noqa: E731
    return {"coins": FunctionDomain(rows, reward, name="coins", limits=Limits(max_new_tokens=4))}


def configuration(**stage: Any) -> RunConfig:
    rl = {"kind": "rl", "steps": 5, "groups_per_step": 4, "group_size": 4, "optimizer": {"learning_rate": 1e-3}}
    return parse(
        {
            "model": "seedling-random",
            "domains": {"coins": {}},
            "stages": [{**rl, **stage}],
            "evaluation": {"tasks": 4, "samples": 1},
            "evaluate_base": False,
            "engine": {"processes": 0},
            "learner": {"processes": 0, "dtype": "float32"},
            "checkpoints": {"every_steps": 2, "keep": 9},
        }
    )


def train(folder: Path, watch: Watch | None = None, **stage: Any) -> TrainResult:
    return start_run(configuration(**stage), folder, watch or Watch(), coins())


def weights(folder: Path) -> dict[str, Any]:
    return dict(load_file(folder / "model" / "model.safetensors"))


def same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def records(folder: Path) -> tuple[MetricsRecord, ...]:
    return read_metrics(folder / "metrics.jsonl").records


@pytest.mark.parametrize("stage", [PPO, STEERED, IN_REWARD], ids=["ppo", "steered", "in_reward"])
def test_a_killed_run_ends_with_the_weights_of_one_that_was_not(stage: dict[str, Any], tmp_path: Path) -> None:
    train(tmp_path / "whole", **stage)
    for kill_at in (1, 4):
        folder = tmp_path / f"killed-{kill_at}"
        with pytest.raises(Killed):
            train(folder, Watch(kill_at), **stage)
        resume_run(folder, Watch(), coins())
        assert same(weights(folder), weights(tmp_path / "whole")), kill_at
        own = [{k: v for k, v in r.values.items() if not _a_time(k)} for r in records(folder)]
        assert own == [{k: v for k, v in r.values.items() if not _a_time(k)} for r in records(tmp_path / "whole")]


def _a_time(name: str) -> bool:
    return name.startswith("time/") or name in ("learner_s", "tokens_per_s")


def test_a_critic_learns_what_the_attempts_earn_and_is_not_exported(tmp_path: Path) -> None:
    train(tmp_path / "run", **PPO)
    first, last = records(tmp_path / "run")[0].values, records(tmp_path / "run")[-1].values
    assert last["value_error"] < first["value_error"]
    assert first["updates"] == 4.0
    assert not any("critic" in name for name in weights(tmp_path / "run"))


def test_what_is_steered_moves_and_is_recorded(tmp_path: Path) -> None:
    train(tmp_path / "run", **STEERED)
    values = [record.values for record in records(tmp_path / "run")]
    assert "factor/kl" not in values[0]
    assert values[1]["factor/entropy"] < 1.0, "an untrained model's entropy is above 3 nats"
    assert any(v["replaced_groups"] > 0 and v["replaced_tokens"] > 0 for v in values)
    state = json.loads(sorted((tmp_path / "run" / "checkpoints").glob("*/COMPLETE.json"))[-1].read_text())["state"]
    assert state["reference"]["version"] == 4, "refreshed after step 4"


def test_evaluations_within_the_stage_stand_beside_the_last_one(tmp_path: Path) -> None:
    train(tmp_path / "run", **IN_REWARD)
    assert [report.label for report in read_reports(tmp_path / "run" / "evals")] == ["rl-000003", "rl"]


def test_a_rule_sends_the_stage_back_with_other_draws_and_a_lower_rate_and_then_stops_it(tmp_path: Path) -> None:
    watch = Watch()
    with pytest.raises(StoppedByRuleError, match="roll-backs so far: 1"):
        train(tmp_path / "run", watch, **RETURNING)
    assert [note for note in watch.notes if "returns to its step 2" in note]
    rates = [record.values["learning_rate"] for record in records(tmp_path / "run")]
    assert rates == pytest.approx([1e-3, 1e-3, 5e-4, 5e-4])
    # What was asked for stands in the checkpoint, so a resumed run does not go back once more.
    with pytest.raises(StoppedByRuleError, match="roll-backs so far: 1"):
        resume_run(tmp_path / "run", Watch(), coins())


@pytest.mark.parametrize("stage", [PPO, STEERED], ids=["ppo", "steered"])
@pytest.mark.parametrize("step", [2, 5])
def test_a_replayed_step_gives_what_was_recorded(stage: dict[str, Any], step: int, tmp_path: Path) -> None:
    train(tmp_path / "run", **stage)
    found = replay(tmp_path / "run", step, None, Watch(), coins())
    assert found.same is True
    assert found.values["loss"] == found.recorded["loss"] != 0.0


def test_a_step_that_is_not_finite_names_its_samples_and_fails_again_when_replayed(tmp_path: Path) -> None:
    with pytest.raises(NonFiniteError, match=r"step 1 of stage rl.*samples rl-00000-"):
        train(tmp_path / "run", optimizer={"learning_rate": 1e-3}, loss=BROKEN)
    found = replay(tmp_path / "run", 1, None, Watch(), coins())
    assert "samples rl-00000-" in found.error
    assert found.same is None


BROKEN = {"name": f"{__file__}:NotFinite"}


class NotFinite:
    """A loss that divides by zero for whatever was good."""

    needs_reference = False
    needs_critic = False

    def __call__(self, inputs: Any) -> Any:
        from posttrain.losses.base import Terms

        return Terms({"policy_loss": inputs.trainer_logprobs / (inputs.advantages.clamp(max=0.0))})


def test_a_step_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    train(tmp_path / "run")
    with pytest.raises(UserError, match="holds no attempts of step 77"):
        replay(tmp_path / "run", 77, None, Watch(), coins())
    with pytest.raises(UserError, match="no RL stage sft"):
        replay(tmp_path / "run", 1, "sft", Watch(), coins())
