"""`posttrain replay` as a user meets it: the step again beside the record, exit code 0 only where they are the same."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.test_rl_stages import Watch, coins, configuration

from posttrain.cli import main
from posttrain.run.replay import Replay
from posttrain.run.train import start_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("replay") / "run"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("os.fsync", lambda _: None)
        start_run(configuration(steps=1), folder, Watch(), coins())
    return folder


@pytest.fixture(autouse=True)
def domains_of_a_plug_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("posttrain.run.replay.make_domains", lambda _: coins())


def posttrain(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> int:
    monkeypatch.setattr(sys, "argv", ["posttrain", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        main()
    return int(stopped.value.code or 0)


def replayed(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    """The command meets a step that came out like this."""
    found = Replay(**{"stage": "rl", "step": 7, "from_step": 4, "values": {}, "recorded": {}, **fields})
    monkeypatch.setattr("posttrain.run.replay_command.replay", lambda *_: found)


def test_a_step_that_comes_back_exactly_is_exit_code_0(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert posttrain(monkeypatch, "replay", run, "1", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["stage"], found["step"], found["from_step"], found["same"]) == ("rl", 1, 0, True)
    assert [row["name"] for row in found["compared"]] == ["loss", "grad_norm", "learning_rate", "num_loss_tokens"]
    assert all(row["same"] and row["recorded"] == row["again"] for row in found["compared"])
    assert (
        found["compared"][1]["recorded"] > 0.0
    )  # a loss may be exactly 0 where advantages are centred; a gradient not


def test_a_step_that_is_not_there_is_exit_code_2(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert posttrain(monkeypatch, "replay", run, "9", "--stage", "rl") == 2
    assert "holds no attempts of step 9" in capsys.readouterr().err


def test_a_step_that_differs_is_exit_code_1_and_shows_every_digit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = {"loss": 0.5, "grad_norm": 1.0, "learning_rate": 1e-3, "num_loss_tokens": 12.0}
    replayed(monkeypatch, values=numbers, recorded={**numbers, "loss": 0.5000000000000001})
    assert posttrain(monkeypatch, "replay", "runs/x", "7") == 1
    shown = capsys.readouterr().out
    assert "Step 7 of stage rl, again from the checkpoint after step 4" in shown
    assert "0.5000000000000001" in shown
    assert "other numbers" in shown


def test_a_step_that_fails_again_is_exit_code_1_and_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    replayed(monkeypatch, error="the loss is not finite for sample rl-00000-0/1")
    assert posttrain(monkeypatch, "replay", "runs/x", "7") == 1
    assert "sample rl-00000-0/1" in capsys.readouterr().out
    assert posttrain(monkeypatch, "replay", "runs/x", "7", "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert found["error"] == "the loss is not finite for sample rl-00000-0/1"
    assert found["same"] is None
    assert found["compared"] == []


def test_a_failure_that_does_not_come_back_is_no_success(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    replayed(monkeypatch, values={"loss": float("nan"), "grad_norm": 1.0})
    assert posttrain(monkeypatch, "replay", "runs/x", "7", "--json") == 1
    assert json.loads(capsys.readouterr().out)["compared"][0] == {
        "name": "loss",
        "recorded": None,
        "again": None,
        "same": False,
    }
