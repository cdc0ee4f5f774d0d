"""What is kept out of the gradient, and what the records say of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from posttrain.core.errors import ConfigError
from posttrain.core.types import (
    Annotations,
    Boundary,
    Detection,
    Failure,
    Group,
    Message,
    Reward,
    Role,
    Split,
    StopReason,
    Task,
    Trajectory,
    Verdict,
)
from posttrain.learn.samples import to_samples
from posttrain.rewards.group_mean import GroupMean
from posttrain.run.config import HeldOutConfig
from posttrain.run.defence import inspection_values, quarantine_values, quarantined
from posttrain.run.drift import drift_values
from posttrain.run.held_out import Judge, gold_of
from posttrain.run.load import parse

CHEAT = (Detection("several_answers", 13, "1; 2", grave=True),)
HINT = (Detection("padding", 19, "spaces"),)


def group(*attempts: tuple[float, tuple[Detection, ...]], domain: str = "sums", **fields: Any) -> Group:
    """Each attempt a score and what detectors saw; three tokens, the last two sampled."""
    task = Task(domain, (Message(Role.USER, domain),), {"answer": 3}, Split.TRAIN, 0, 0, 1)
    sampled = np.asarray([False, True, True])
    trajectories = tuple(
        Trajectory(
            trajectory_id=f"{domain}/{sibling}",
            task=task,
            group_id=domain,
            sibling=sibling,
            tokens=np.arange(3, dtype=np.int32),
            sampled=sampled,
            behavior_logprobs=np.zeros(3, np.float32),
            versions=np.where(sampled, 0, -1),
            turns=(),
            reply="Answer: 3",
            stop=StopReason.STOP,
            verdict=Verdict.correct() if score else Verdict.incorrect("wrong"),
            reward=Reward(score),
            detections=detections,
            **fields,
        )
        for sibling, (score, detections) in enumerate(attempts)
    )
    return Group(domain, task, trajectories)


def learned(groups: Sequence[Group]) -> list[tuple[str, float]]:
    """What the loss would see: each sample's name and credit."""
    selection = to_samples(groups, GroupMean()(groups, Annotations()))
    return [(sample.trajectory_id, float(sample.advantages[-1])) for sample in selection.samples]


def test_a_suspect_attempt_is_in_no_term_no_denominator_and_no_baseline() -> None:
    whole = group((1.0, CHEAT), (1.0, ()), (0.0, ()))
    honest = replace(whole, trajectories=whole.trajectories[1:])
    kept = quarantined([whole], {"suspect/sums": "the rule's sentence"}, {})
    assert learned(kept) == learned([honest]) == [("sums/1", 0.5), ("sums/2", -0.5)]
    assert kept[0].trajectories[0].quarantine == "the rule's sentence"
    selection = to_samples(kept, GroupMean()(kept, Annotations()))
    assert (selection.num_quarantined, selection.num_without_verdict) == (1, 0)
    assert sum(sample.weight for sample in selection.samples) == 4.0


def test_what_earned_nothing_is_learned_from_whatever_it_looks_like() -> None:
    groups = [group((0.0, CHEAT), (1.0, HINT))]
    assert quarantined(groups, {"suspect/sums": "r"}, {}) == groups


def test_quarantine_is_of_a_domain_and_of_what_the_rule_counts() -> None:
    groups = [group((1.0, CHEAT), (1.0, HINT)), group((1.0, CHEAT), domain="words")]
    marked = quarantined(groups, {"detector/padding/sums": "r"}, {})
    assert [t.quarantine for g in marked for t in g.trajectories] == ["", "r", ""]


def test_attempts_that_were_under_way_when_their_domain_was_paused_are_not_learned_from() -> None:
    marked = quarantined([group((1.0, ()), (0.0, ()))], {}, {"sums": "paused"})
    assert learned(marked) == []
    assert [t.quarantine for t in marked[0].trajectories] == ["paused", "paused"]


def test_counts_are_by_domain_and_failures_are_no_cheats() -> None:
    lost = group((1.0, CHEAT), failure=Failure(Boundary.SANDBOX, "gone"))
    groups = [group((1.0, CHEAT), (0.0, CHEAT), (1.0, ()), (1.0, HINT)), group((1.0, ()), domain="words"), lost]
    attempts = [t for g in groups for t in g.trajectories]
    values = inspection_values(attempts)
    assert values["suspect/sums"] == 0.2
    assert values["suspect_of_paid/sums"] == pytest.approx(1 / 3)
    assert values["suspect/words"] == 0.0
    assert values["detector/several_answers/sums"] == 0.6
    assert "detector/several_answers/words" not in values
    kept = [t for g in quarantined(groups, {"suspect/sums": "r"}, {}) for t in g.trajectories]
    assert quarantine_values(kept) == {
        "quarantined": 1.0,
        "quarantined/sums": 1.0,
        "no_verdict/sums": 1.0,
        "no_verdict_share/sums": 0.2,
        "no_verdict_share/words": 0.0,
    }


def test_the_independent_verifier_is_measured_over_what_both_judged() -> None:
    whole = group((1.0, ()), (1.0, ()), (0.0, ()), (1.0, ()))
    second = [Verdict.correct(), Verdict.incorrect("no"), Verdict.incorrect("no"), Verdict.none("it failed")]
    attempts = [replace(t, held_out=v) for t, v in zip(whole.trajectories, second, strict=True)]
    values = inspection_values(attempts)
    assert values["held_out/sums"] == pytest.approx(1 / 3)
    assert values["held_out_agreement/sums"] == pytest.approx(2 / 3)
    assert values["held_out_no_verdict/sums"] == 0.25


def test_a_verifier_that_raises_has_no_verdict() -> None:
    judge = Judge({"sums": {"name": "number"}})
    assert judge.judge("sums", "Answer: 3", 3).score == 1.0
    assert judge.judge("sums", "Answer: 3 or 4", 3).score == 0.0
    assert "raised ValueError" in judge.judge("sums", "Answer: 3", "no number").reason


def test_a_held_out_verifier_is_configured_with_the_gold_it_reads() -> None:
    raw = {
        "model": "seedling-random",
        "domains": {"arithmetic": {"held_out": {"verifier": {"name": "number"}}, "precision_floor": 0.8}},
        "stages": [{"kind": "rl"}],
    }
    config = parse(raw).domains["arithmetic"]
    assert config.held_out == HeldOutConfig({"name": "number"})
    task = group((1.0, ())).task
    assert gold_of(task, HeldOutConfig({"name": "number"})) == 3
    with pytest.raises(ConfigError, match=r"gold is 'words', and its tasks hide \['answer'\]"):
        gold_of(task, HeldOutConfig({"name": "number"}, gold="words"))


@pytest.mark.parametrize(
    ("rule", "complaint"),
    [
        ({"metric": "reward", "action": "quarantine"}, "quarantined by a metric that counts them"),
        ({"metric": "reward", "action": "pause"}, "ends with its name"),
    ],
)
def test_a_rule_that_could_not_do_what_it_says_is_refused(rule: dict[str, str], complaint: str) -> None:
    own = {"name": "r", "when": "above", "threshold": 0.0, **rule}
    raw = {"model": "m", "domains": {"arithmetic": {}}, "stages": [{"kind": "rl", "rules": [own]}]}
    with pytest.raises(ConfigError, match=complaint):
        parse(raw)


def test_drift_is_the_reward_s_rise_that_nothing_confirms() -> None:
    def history(reward: Sequence[float], other: Sequence[float]) -> list[dict[str, float]]:
        return [{"reward/d": r, "held_out/d": o} for r, o in zip(reward, other, strict=True)]

    low, high = [0.2] * 10, [0.8] * 10
    name = "drift/held_out/d"
    assert drift_values(history(low + high, low + low))[name] == pytest.approx(0.6)
    assert drift_values(history(low + high, low + high))[name] == 0.0
    assert drift_values(history(high + low, high + low))[name] == 0.0, "both fall"
    assert drift_values(history(high + high, low + low))[name] == 0.0, "a verifier that was always milder"
    assert drift_values(history(low + low, high + low))[name] == 0.0, "the reward does not rise"
    assert drift_values(history([0.1] * 5, [0.1] * 5)) == {}, "too few steps"
    assert drift_values([{"reward/d": 1.0}] * 20) == {}, "nothing confirms it"
