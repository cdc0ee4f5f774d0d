"""A group has a signal where its attempts came out differently."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tests.rewards.parts import attempt, group, siblings

from posttrain.core.types import Trajectory, Verdict, VerdictStatus
from posttrain.rewards.overlong import penalise_overlong
from posttrain.rewards.signal import has_signal


def scored(score: float, *turns: int, name: str = "g/0", turn_rewards: Sequence[float] = ()) -> Trajectory:
    verdict = Verdict(VerdictStatus.CORRECT, score)
    return attempt(score, turns or (2,), name=name, turn_rewards=turn_rewards, verdict=verdict)


def test_different_scores_are_a_signal_and_equal_ones_are_none() -> None:
    assert has_signal(group(scored(1.0), scored(0.0, name="g/1")))
    assert not has_signal(group(scored(0.1), scored(0.1, name="g/1")))


def test_one_attempt_and_no_attempt_are_none() -> None:
    assert not has_signal(group(scored(1.0)))
    assert not has_signal(siblings([None, None]))


def test_attempts_without_a_verdict_are_not_compared() -> None:
    lost = dataclasses.replace(scored(0.0, name="g/1"), verdict=Verdict.none("timeout of ours"))
    assert not has_signal(group(scored(1.0), lost))


def test_rewards_of_single_turns_are_a_signal() -> None:
    assert has_signal(group(scored(0.0, 1, 1, turn_rewards=[1.0]), scored(0.0, 1, 1, name="g/1")))


def test_length_penalty_is_none() -> None:
    (shaped,) = penalise_overlong([group(scored(1.0, 64), scored(1.0, 2, name="g/1"))])
    totals = {t.reward.total for t in shaped.trajectories if t.reward is not None}
    assert len(totals) == 2
    assert not has_signal(shaped)
