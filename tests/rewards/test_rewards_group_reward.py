"""Verdicts of a group → rewards: sources, gates, what waits for correctness, what is missing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.rewards.parts import FAILURE, attempt, group

from posttrain.core.errors import ConfigError
from posttrain.core.types import Cost, Reward, Trajectory, Verdict, VerdictStatus
from posttrain.rewards.compose import total
from posttrain.rewards.group_reward import rewarded
from posttrain.rewards.spec import PartSpec, RewardSpec

WELL = "well formed"
ALL = {
    "outcome": PartSpec(1.0),
    "process": PartSpec(0.4),
    "format": PartSpec(0.1),
    "efficiency": PartSpec(0.2),
}


def tried(place: int, score: float, *, process: float | None = 1.0, tokens: int = 10, reply: str = WELL) -> Trajectory:
    status = VerdictStatus.CORRECT if score == 1.0 else VerdictStatus.INCORRECT
    verdict = Verdict(status, score, parts={} if process is None else {"process": process})
    return attempt(score, name=f"g/{place}", verdict=verdict, cost=Cost(tokens), reply=reply)


def rewards(*attempts: Trajectory, **parts: PartSpec) -> list[Reward]:
    spec = RewardSpec({**ALL, **parts})
    found = rewarded(group(*attempts), spec, spec.weights_at(1, {}), lambda reply: float(reply == WELL))
    return [t.reward for t in found.trajectories if t.reward is not None]


def test_parts_come_from_score_verdict_reply_and_cost() -> None:
    short, long, wrong = rewards(tried(0, 1.0, tokens=5), tried(1, 1.0, tokens=15), tried(2, 0.0, process=0.5))
    assert short.parts == {"outcome": 1.0, "process": 1.0, "format": 1.0, "efficiency": 0.5}
    assert long.parts == {"outcome": 1.0, "process": 1.0, "format": 1.0, "efficiency": 0.0}
    assert wrong.parts == {"outcome": 0.0, "process": 0.5, "format": 1.0, "efficiency": 0.0}
    assert short.total == pytest.approx(1.0 + 0.4 + 0.1 + 0.1)
    assert wrong.total == pytest.approx(0.4 * 0.5)
    assert wrong.withheld == ("format", "efficiency")
    assert all(total(reward) == reward.total for reward in (short, long, wrong))


def test_no_wrong_answer_earns_by_form_or_brevity() -> None:
    wrong = [tried(place, 0.0, process=0.0, tokens=place) for place in range(3)]
    ill_formed = replace(wrong[2], reply="ill formed")
    assert [r.total for r in rewards(wrong[0], wrong[1], ill_formed, tried(3, 1.0, tokens=30))[:3]] == [0.0, 0.0, 0.0]


def test_a_shut_gate_leaves_nothing_and_says_which() -> None:
    good, bad = rewards(tried(0, 1.0), tried(1, 1.0, reply="ill formed"), format=PartSpec(0.0, gate=1.0))
    assert (good.gates, bad.gates) == ({"format": True}, {"format": False})
    assert bad.total == 0.0
    assert bad.parts["outcome"] == 1.0
    assert good.total > 1.0


def test_process_may_be_made_to_wait_for_correctness() -> None:
    (wrong,) = rewards(tried(0, 0.0), process=PartSpec(0.4, after_correctness=True))
    assert wrong.total == 0.0
    assert wrong.parts["process"] == 1.0


def test_chance_is_subtracted_from_the_outcome_alone() -> None:
    right, wrong = rewards(
        tried(0, 1.0), tried(1, 0.0, process=0.0), outcome=PartSpec(1.0, null_level=0.2), efficiency=PartSpec(0.0)
    )
    assert right.total == pytest.approx(1.0 + 0.4 + 0.1)
    assert wrong.total == pytest.approx(-0.25)
    assert wrong.null_levels == {"outcome": 0.2}


def test_part_that_a_correct_verdict_lacks_is_a_mistake_and_not_a_zero() -> None:
    with pytest.raises(ConfigError, match=r"domain toy has a part 'process'.* has no 'process' \(it has: no parts\)"):
        rewards(tried(0, 1.0, process=None))


def test_part_that_an_incorrect_verdict_lacks_counts_as_nothing_shown() -> None:
    (wrong,) = rewards(tried(0, 0.0, process=None))
    assert wrong.parts["process"] == 0.0


@pytest.mark.parametrize("lost", [{"failure": FAILURE}, {"verdict": Verdict.none("the pool was closed")}])
def test_attempt_without_a_verdict_keeps_no_reward_and_is_no_reference(lost: dict[str, Any]) -> None:
    unscored = replace(tried(0, 1.0, tokens=1), reward=None, **lost)
    spec = RewardSpec(dict(ALL))
    found = rewarded(group(unscored, tried(1, 1.0)), spec, spec.weights_at(1, {}), lambda reply: 1.0)
    assert found.trajectories[0].reward is None
    assert not found.trajectories[0].scored
    alone = found.trajectories[1].reward
    assert alone is not None
    assert alone.parts["efficiency"] == 0.0
