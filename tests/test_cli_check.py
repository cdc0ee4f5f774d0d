"""`posttrain check loss` as a user meets it: a table or one JSON object, and exit codes that say how it ended."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from posttrain.cli import main

OWN = """
from dataclasses import dataclass
from posttrain.losses.base import Terms

@dataclass(frozen=True)
class Mean:
    over_all: bool = True
    needs_reference = False
    needs_critic = False

    def __call__(self, inputs):
        count = len(inputs.advantages) if self.over_all else 1
        return Terms({"policy_loss": -inputs.advantages * inputs.trainer_logprobs / count})
"""


@pytest.fixture
def own(tmp_path: Path) -> str:
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return f"{path}:Mean"


def posttrain(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["posttrain", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    return int(stopped.value.code or 0)


def test_a_loss_that_obeys_leaves_one_json_object(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert posttrain(monkeypatch, "check", "loss", "entropy_bonus", "--set", "coefficient=0.5", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["name"] == "entropy_bonus"
    assert [set(law) for law in found["laws"]] == [{"law", "holds", "what", "smallest_input"}] * 13
    assert all(law["holds"] and law["smallest_input"] is None for law in found["laws"])


def test_a_broken_law_is_named_with_the_smallest_input_and_exit_code_1(
    own: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert posttrain(monkeypatch, "check", "loss", own, "--json") == 1
    broken = {law["law"]: law for law in json.loads(capsys.readouterr().out)["laws"] if not law["holds"]}
    assert "segments=[0, 1]" in broken["L2 reduction"]["smallest_input"]


def test_the_table_says_which_law_and_options_reach_the_loss(
    own: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert posttrain(monkeypatch, "check", "loss", own) == 1
    shown = capsys.readouterr().out
    assert "laws are broken: L1 cutting, L2 reduction" in shown
    assert "smallest input" in shown
    assert posttrain(monkeypatch, "check", "loss", own, "--set", "over_all=false") == 0
    assert "Every law holds." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["grpo"], "there is no loss 'grpo'"),
        (["none.py:Loss"], "there is no file"),
        (["gspo", "--set", "clip_lo=1"], "did you mean 'clip_low'"),
        (["gspo", "--set", "clip_low=-1"], "clip_low must lie in"),
        (["gspo", "--set", "clip_low"], "an option is written key=value"),
    ],
)
def test_a_mistake_is_a_sentence_and_exit_code_2(
    arguments: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert posttrain(monkeypatch, "check", "loss", *arguments) == 2
    printed = capsys.readouterr()
    assert sentence in printed.err
    assert printed.out == ""
