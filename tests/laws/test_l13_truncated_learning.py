"""L13, the learning side: the sampled stop token is trained; what becomes of truncated attempts is a stated option."""

from __future__ import annotations

import numpy as np
import pytest

from posttrain.core.types import Annotations, Group, Split, StopReason, Task, Trajectory, Verdict
from posttrain.learn.samples import to_samples
from posttrain.rewards.compose import compose
from posttrain.rewards.group_mean import GroupMean
from posttrain.rewards.overlong import penalise_overlong

STOP = 9


def group(*ends: StopReason) -> Group:
    """Attempts of reward 0, 1, 2 …: an attempt that stopped ends with the stop token it sampled."""
    task = Task("toy", (), {}, Split.TRAIN, seed=0, index=0, level=1)
    attempts = []
    for sibling, stop in enumerate(ends):
        tokens = np.asarray([1, 2, 5, STOP if stop is StopReason.STOP else 6], np.int32)
        sampled = np.asarray([False, False, True, True])
        logprobs = np.asarray([0, 0, -1.0, -0.25], np.float32)
        versions = np.asarray([-1, -1, 4, 4], np.int32)
        verdict, reward = Verdict.correct(), compose({"outcome": float(sibling)}, {"outcome": 1.0})
        attempts.append(
            Trajectory(
                f"g/{sibling}", task, "g", sibling, tokens, sampled, logprobs, versions, (), "", stop, verdict, reward
            )
        )
    return Group("g", task, tuple(attempts))


def test_sampled_stop_token_is_trained_with_its_own_logprob() -> None:
    siblings = [group(StopReason.STOP, StopReason.STOP)]
    for s in to_samples(siblings, GroupMean()(siblings, Annotations())).samples:
        assert s.tokens[-1] == STOP
        assert s.trainable.tolist() == [False, False, True, True]
        assert s.behavior_logprobs[-1] == np.float32(-0.25)
        assert s.advantages[-1] != 0.0
        assert s.versions[-1] == 4


@pytest.mark.parametrize("stop", [StopReason.MAX_NEW_TOKENS, StopReason.MAX_CONTEXT])
def test_kept_truncated_attempt_gets_no_invented_end(stop: StopReason) -> None:
    siblings = [group(stop, StopReason.STOP)]
    kept = to_samples(siblings, GroupMean()(siblings, Annotations()), truncated="keep").samples[0]
    assert kept.tokens.tolist() == siblings[0].trajectories[0].tokens.tolist()
    assert STOP not in kept.tokens
    assert kept.num_loss_tokens == 2


@pytest.mark.parametrize("stop", [StopReason.MAX_NEW_TOKENS, StopReason.MAX_CONTEXT])
def test_masked_truncated_attempt_is_in_no_term_at_all(stop: StopReason) -> None:
    siblings = [group(stop, StopReason.STOP)]
    chosen = to_samples(siblings, GroupMean()(siblings, Annotations()), truncated="mask")
    assert [s.trajectory_id for s in chosen.samples] == ["g/1"]
    assert chosen.num_masked_truncated == 1


@pytest.mark.parametrize("stop", [StopReason.MAX_NEW_TOKENS, StopReason.MAX_CONTEXT])
def test_penalised_truncated_attempt_is_trained_with_the_lower_reward(stop: StopReason) -> None:
    siblings = penalise_overlong([group(stop, stop, StopReason.STOP)])
    chosen = to_samples(siblings, GroupMean()(siblings, Annotations()), truncated="penalise")
    assert chosen.num_masked_truncated == 0
    # Rewards 0, 1 and 2; the penalty takes half a point off the first two.
    assert [float(s.advantages[-1]) for s in chosen.samples] == pytest.approx([-7 / 6, -1 / 6, 8 / 6])
    assert [t.reward.total for t in siblings[0].trajectories if t.reward] == [-0.5, 0.5, 2.0]


def test_end_by_the_last_turn_is_no_truncation() -> None:
    siblings = [group(StopReason.MAX_TURNS, StopReason.STOP)]
    assert len(to_samples(siblings, GroupMean()(siblings, Annotations()), truncated="mask").samples) == 2


def test_samples_carry_the_temperature_they_were_drawn_at() -> None:
    siblings = [group(StopReason.STOP, StopReason.STOP)]
    chosen = to_samples(siblings, GroupMean()(siblings, Annotations()), temperature=0.6)
    assert {s.temperature for s in chosen.samples} == {0.6}
