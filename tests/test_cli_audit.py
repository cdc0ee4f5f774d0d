"""`posttrain audit`, `review`, `reverify` and `domains audit` as a user meets them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.test_cli import CONFIG, posttrain

HOLE = """
from posttrain.domains.arithmetic import Arithmetic
from posttrain.domains.single_turn import SingleTurnEnvironment
from posttrain.core.types import Verdict

class Hole(Arithmetic):
    def environment(self, task, sandbox):
        return SingleTurnEnvironment(task, lambda task, reply: Verdict.correct(answer=reply), "1")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a run of one step in `runs/tiny`."""
    folder = tmp_path_factory.mktemp("cli")
    (folder / "tiny.toml").write_text(CONFIG)
    trained = posttrain("train", "tiny.toml", cwd=folder)
    assert trained.returncode == 0, trained.stderr
    return folder


def test_an_audit_tells_of_every_domain(folder: Path) -> None:
    found = json.loads(posttrain("audit", "runs/tiny", "--json", cwd=folder).stdout)
    assert [domain["domain"] for domain in found["domains"]] == ["arithmetic"]
    assert found["domains"][0]["attempts"] == 2
    assert {"alarms", "detectors", "examples", "reviews"} <= found.keys()
    assert "Attempts by domain" in posttrain("audit", "runs/tiny", cwd=folder).stdout


def test_a_label_goes_into_the_queue_s_statistics(folder: Path) -> None:
    listed = json.loads(posttrain("review", "list", "runs/tiny", "--reviewer", "ann", "--json", cwd=folder).stdout)
    assert {"trajectory_id", "stratum", "why", "prompt", "reply", "status"} <= listed[0].keys()
    names = [item["trajectory_id"] for item in listed]
    for name in names:
        label = ("review", "label", "runs/tiny", name, "incorrect", "--note", "no", "--reviewer", "ann", "--json")
        assert json.loads(posttrain(*label, cwd=folder).stdout)["label"] == "incorrect"
    left = json.loads(posttrain("review", "list", "runs/tiny", "--reviewer", "ann", "--json", cwd=folder).stdout)
    assert left == []
    stats = json.loads(posttrain("review", "stats", "runs/tiny", "--json", cwd=folder).stdout)
    assert stats["num_labelled"] == len(names)
    assert stats["verifiers"][0]["domain"] == "arithmetic"
    for arguments, sentence in (
        (("review", "label", "runs/tiny", names[0], "wrong"), "there is no label 'wrong'"),
        (("review", "label", "runs/tiny", "rl-9", "correct"), "there is no attempt in the review queue 'rl-9'"),
    ):
        answer = posttrain(*arguments, cwd=folder)
        assert (answer.returncode, sentence in answer.stderr) == (2, True), answer.stderr


def test_verdicts_of_the_present_version_are_not_asked_for_again(folder: Path) -> None:
    found = json.loads(posttrain("reverify", "runs/tiny", "--json", cwd=folder).stdout)
    assert (found["unchanged"], found["domains"]) == (["arithmetic"], [])
    again = json.loads(posttrain("reverify", "runs/tiny", "--domain", "arithmetic", "--json", cwd=folder).stdout)
    assert again["domains"][0]["attempts"] == 2
    assert again["advice"] == "No verdict changed."
    assert "posttrain:" in posttrain("reverify", "runs/tiny", "--domain", "word", cwd=folder).stderr


def test_a_domain_with_a_hole_fails_its_audit(folder: Path) -> None:
    (folder / "hole.py").write_text(HOLE)
    sound = posttrain("domains", "audit", "arithmetic", "--count", "6", "--json", cwd=folder)
    assert sound.returncode == 0, sound.stdout[-2000:]
    assert json.loads(sound.stdout)["holds"] is True
    hole = posttrain("domains", "audit", "hole.py:Hole", "--count", "6", "--json", cwd=folder)
    assert hole.returncode == 1
    failed = {finding["check"] for finding in json.loads(hole.stdout)["findings"] if not finding["holds"]}
    assert {"hostile", "other_golds", "null_policy"} <= failed
