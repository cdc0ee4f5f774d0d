"""Rewards of several parts through the real loop: what is stored can be computed again, and a killed run agrees."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from posttrain.core.errors import StoppedByRuleError
from posttrain.core.types import Limits, Task, Verdict, VerdictStatus
from posttrain.domains.function import FunctionDomain
from posttrain.rewards.compose import total
from posttrain.run.load import parse
from posttrain.run.replay import replay
from posttrain.run.train import resume_run, start_run
from posttrain.store.checkpoints import Checkpoints
from posttrain.store.metrics import read_metrics
from posttrain.store.trajectories import TrajectoryStore
from posttrain.store.weight_changes import WeightChange, read_weight_changes

REWARD: dict[str, Any] = {
    "parts": {
        "outcome": {"weight": 1.0, "null_level": 0.25},
        "process": {"weight": 0.4, "cap": 0.8, "schedule": [[2, 2.0], [4, 1.0]], "gate": 0.9},
        "format": {"weight": 0.1},
        "efficiency": {"weight": 0.3, "budget": 4.0},
        "short": {"kind": "efficiency", "weight": 0.0, "budget": 5.0},
    }
}
LOWER = {"name": "lower", "metric": "reward_saturated/*/format", "when": "below", "threshold": 2.0, "cooldown_steps": 1}
STAGE: dict[str, Any] = {
    "kind": "rl",
    "steps": 5,
    "groups_per_step": 3,
    "group_size": 4,
    "refill_rounds": 1,
    "truncated": "penalise",
    "advantage": {"name": "part_mean_std"},
    "optimizer": {"learning_rate": 1e-3},
    "rules": [{**LOWER, "action": "lower_part", "factor": 0.5}],
}


class Killed(BaseException):
    """What ends a run in the middle."""


class Watch:
    """An observer that ends the run once `steps` steps were told."""

    def __init__(self, steps: int = 0) -> None:
        self._left = steps

    def stage(self, name: str, total_steps: int | None, done: int = 0) -> None: ...

    def phase(self, name: str, total: int | None = None) -> None: ...

    def advance(self, amount: int = 1) -> None: ...

    def step(self, step: int, values: Mapping[str, float]) -> None:
        self._left -= 1
        if self._left == 0:
            raise Killed

    def note(self, sentence: str) -> None: ...


@pytest.fixture(autouse=True)
def quick_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here cuts the power."""
    monkeypatch.setattr("os.fsync", lambda _: None)


def coins() -> dict[str, FunctionDomain]:
    def reward(task: Task, reply: str) -> Verdict:
        even = len(reply) % 2 == 0
        status = VerdictStatus.CORRECT if even else VerdictStatus.INCORRECT
        return Verdict(status, float(even), parts={"process": len(set(reply)) / max(1, len(reply))})

    rows = [(f"Say {number}.", "") for number in range(200)]
    return {"coins": FunctionDomain(rows, reward, name="coins", limits=Limits(max_new_tokens=4))}


def train(folder: Path, watch: Watch, **stage: Any) -> None:
    config = parse(
        {
            "model": "seedling-random",
            "domains": {"coins": {}},
            "stages": [{**STAGE, **stage}],
            "reward": REWARD,
            "evaluation": {"tasks": 4, "samples": 1},
            "evaluate_base": False,
            "engine": {"processes": 0},
            "learner": {"processes": 0, "dtype": "float32"},
            "checkpoints": {"every_steps": 2, "keep": 9},
        }
    )
    start_run(config, folder, watch, coins())


def values(folder: Path) -> list[dict[str, float]]:
    records = read_metrics(folder / "metrics.jsonl").records
    timed = ("time/", "learner_s", "tokens_per_s")
    return [{k: v for k, v in record.values.items() if not k.startswith(timed)} for record in records]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    train(folder, Watch())
    return folder


def test_totals_of_a_stored_run_are_what_its_raw_parts_and_weights_give(whole: Path) -> None:
    seen = set()
    for row in TrajectoryStore(whole / "trajectories").rows():
        assert row.reward is not None
        assert row.verdict is not None
        reward = row.reward
        assert total(reward) == reward.total
        assert reward.parts["outcome"] == row.verdict.score, "parts are raw: what the verdict said"
        assert reward.parts["process"] == row.verdict.parts["process"]
        # The formula once more, by hand.
        by_hand = reward.weights["outcome"] * (reward.parts["outcome"] * all(reward.gates.values()) - 0.25) / 0.75
        for name in ("process", "format", "efficiency", "overlong"):
            counts = all(reward.gates.values()) and name not in reward.withheld
            by_hand += reward.weights[name] * reward.parts[name] * counts
        assert reward.total == pytest.approx(by_hand)
        recorded = values(whole)[row.step - 1]
        assert {f"reward_weight/coins/{name}": reward.weights[name] for name in REWARD["parts"]} == {
            name: value for name, value in recorded.items() if name.startswith("reward_weight/")
        }
        seen.add((row.verdict.status, all(reward.gates.values())))
    assert len(seen) > 2, "right and wrong attempts, behind open and shut gates"


def test_every_change_of_a_weight_is_recorded_with_its_cause(whole: Path) -> None:
    found = [(c.step, c.part, c.before, c.after) for c in read_weight_changes(whole / "reward_weights.jsonl")]
    assert found == [
        (1, "format", 0.1, 0.05),
        (2, "process", 0.8, pytest.approx(0.6)),
        (3, "format", 0.05, 0.025),
        (3, "process", pytest.approx(0.6), 0.4),
    ]
    causes = [change.cause for change in read_weight_changes(whole / "reward_weights.jsonl")]
    assert causes[0].startswith("reward_saturated/coins/format was ")
    assert causes[1] == "the schedule of step 3"
    weights = [step["reward_weight/coins/format"] for step in values(whole)]
    assert weights == [0.1, 0.05, 0.05, 0.025, 0.025]
    assert [step.get("factor/coins/format") for step in values(whole)] == [None, 0.5, 0.5, 0.25, 0.25]
    steering = [c.state["steering"]["parts"] for c in Checkpoints(whole / "checkpoints", keep=9).whole()]
    assert steering[:2] == [{"coins/format": 0.5}, {"coins/format": 0.25}], "part of each checkpoint"


@pytest.mark.parametrize("kill_at", [1, 2, 4])
def test_a_killed_run_ends_with_the_same_weights_of_model_and_reward(kill_at: int, whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    with pytest.raises(Killed):
        train(folder, Watch(kill_at))
    resume_run(folder, Watch(), coins())
    assert values(folder) == values(whole)
    assert changes(folder) == changes(whole)
    ours, theirs = (dict(load_file(run / "model" / "model.safetensors")) for run in (folder, whole))
    assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)


def test_a_step_is_replayed_from_the_rewards_that_are_stored(whole: Path) -> None:
    assert replay(whole, 4, None, Watch(), coins()).same is True


def test_a_return_to_a_good_checkpoint_takes_back_what_changed_behind_it(tmp_path: Path) -> None:
    back = {"name": "back", "metric": "num_attempts", "when": "above", "threshold": 1.0, "after_step": 3}
    once = {**back, "cooldown_steps": 0, "action": "roll_back"}
    with pytest.raises(StoppedByRuleError):  # the second time that it fires
        train(tmp_path / "run", Watch(), rules=[*STAGE["rules"], once], max_roll_backs=1)
    present = {"process": 0.8, "format": 0.1}
    followed = changes(tmp_path / "run")
    for step, recorded in enumerate(values(tmp_path / "run"), start=1):
        assert {part: recorded[f"reward_weight/coins/{part}"] for part in present} == pytest.approx(present)
        for change in (change for change in followed if change.step == step):
            assert change.before == pytest.approx(present[change.part])
            present[change.part] = change.after
    assert values(tmp_path / "run")[-1]["roll_backs"] == 1.0


def changes(folder: Path) -> list[WeightChange]:
    return read_weight_changes(folder / "reward_weights.jsonl")
