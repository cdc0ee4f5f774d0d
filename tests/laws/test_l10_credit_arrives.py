"""L10: every sampled token of every turn carries its credit; what was earned is conserved; no other token is read."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rewards.parts import (
    ADVANTAGES,
    NOTHING,
    annotated,
    attempt,
    component,
    credit,
    group,
    steps,
    unsampled,
    with_reward,
)

from posttrain.core.protocols import ValueTargets
from posttrain.core.types import Annotations, Group, Trajectory
from posttrain.learn.samples import to_samples
from posttrain.rewards.token_rewards import returns_to_go


def without_expectations(groups: list[Group]) -> Annotations:
    return Annotations(
        values={t.trajectory_id: np.zeros(len(t.tokens), np.float32) for group in groups for t in group.trajectories}
    )


@pytest.mark.parametrize("name", ADVANTAGES)
def test_outcome_reaches_every_sampled_token_of_every_turn(name: str) -> None:
    """The better attempt's tokens all gain, the worse one's all lose, and between the turns there is nothing."""
    pair = group(attempt(1.0, [2, 1, 3], name="g/0"), attempt(0.0, [1, 2], name="g/1"))
    arrays = component(name)([pair], without_expectations([pair]))[0]
    for array, trajectory, sign in zip(arrays, pair.trajectories, (1, -1), strict=True):
        assert (np.sign(array[trajectory.sampled]) == sign).all()
        assert not array[~trajectory.sampled].any()


@pytest.mark.parametrize("name", ["group_mean", "group_mean_std", "leave_one_out", "part_mean_std"])
@settings(max_examples=40, deadline=None)
@given(groups=steps(), kl=st.sampled_from([0.0, 0.3]))
def test_credit_of_an_attempt_is_the_same_on_all_of_its_tokens(name: str, groups: list[Group], kl: float) -> None:
    for arrays, step in zip(component(name)(groups, annotated(groups, kl=kl)), groups, strict=True):
        credit(arrays, step)


@pytest.mark.parametrize("name", ADVANTAGES)
@settings(max_examples=40, deadline=None)
@given(groups=steps(), kl=st.sampled_from([0.0, 0.3]))
def test_tokens_that_the_policy_did_not_sample_carry_nothing(name: str, groups: list[Group], kl: float) -> None:
    for arrays, step in zip(component(name)(groups, annotated(groups, kl=kl)), groups, strict=True):
        for array, trajectory in zip(arrays, step.trajectories, strict=True):
            assert not array[~trajectory.sampled].any()


@pytest.mark.parametrize("name", ADVANTAGES)
@pytest.mark.parametrize("garbage", [float("nan"), float("inf"), -7.0])
@settings(max_examples=20, deadline=None)
@given(groups=steps())
def test_what_stands_at_tokens_not_sampled_is_never_read(name: str, garbage: float, groups: list[Group]) -> None:
    """Law L3 for credit: values, log-probs of policy, reference and sampler."""
    dirty = [
        dataclasses.replace(step, trajectories=tuple(dirtied(t, garbage) for t in step.trajectories)) for step in groups
    ]
    advantage = component(name)
    clean_notes, dirty_notes = annotated(groups, kl=0.3), annotated(dirty, kl=0.3, elsewhere=garbage)
    for sampler_alone in (False, True):
        if sampler_alone:
            clean_notes = dataclasses.replace(clean_notes, policy_logprobs={})
            dirty_notes = dataclasses.replace(dirty_notes, policy_logprobs={})
        assert plain(advantage(dirty, dirty_notes)) == plain(advantage(groups, clean_notes))
        if isinstance(advantage, ValueTargets):
            expected = advantage.value_targets(groups, clean_notes)
            assert plain(advantage.value_targets(dirty, dirty_notes)) == plain(expected)


def dirtied(trajectory: Trajectory, garbage: float) -> Trajectory:
    logprobs = unsampled(trajectory.sampled, trajectory.behavior_logprobs, garbage)
    return dataclasses.replace(trajectory, behavior_logprobs=logprobs)


def plain(arrays: list[list[np.ndarray]]) -> list[list[list[float]]]:
    return [[array.tolist() for array in arrays_G] for arrays_G in arrays]


@pytest.mark.parametrize("name", ADVANTAGES)
@settings(max_examples=30, deadline=None)
@given(groups=steps(), gap=st.integers(0, 5))
def test_how_much_the_environment_says_between_turns_changes_no_credit(
    name: str, groups: list[Group], gap: int
) -> None:
    """The estimators run over trainable tokens: others neither discount nor weigh."""
    wider = [dataclasses.replace(s, trajectories=tuple(widened(t, gap) for t in s.trajectories)) for s in groups]
    notes = dataclasses.replace(annotated(groups, kl=0.3), policy_logprobs={})
    moved = dataclasses.replace(
        notes,
        values={t.trajectory_id: spread(t, notes.values[t.trajectory_id], gap) for s in groups for t in s.trajectories},
        reference_logprobs={
            t.trajectory_id: spread(t, notes.reference_logprobs[t.trajectory_id], gap)
            for s in groups
            for t in s.trajectories
        },
    )
    before, after = component(name)(groups, notes), component(name)(wider, moved)
    for step, wide, before_G, after_G in zip(groups, wider, before, after, strict=True):
        for t, w, one, other in zip(step.trajectories, wide.trajectories, before_G, after_G, strict=True):
            assert one[t.sampled].tolist() == other[w.sampled].tolist()


def widened(trajectory: Trajectory, gap: int) -> Trajectory:
    """`gap` more tokens of the environment's before each turn."""
    fields: dict[str, Any] = {
        name: spread(trajectory, getattr(trajectory, name), gap)
        for name in ("tokens", "sampled", "behavior_logprobs", "versions")
    }
    turns = tuple(
        dataclasses.replace(turn, start=turn.start + gap * (place + 1), end=turn.end + gap * (place + 1))
        for place, turn in enumerate(trajectory.turns)
    )
    return dataclasses.replace(trajectory, turns=turns, **fields)


def spread(trajectory: Trajectory, values: np.ndarray, gap: int) -> np.ndarray:
    for turn in reversed(trajectory.turns):
        values = np.insert(values, turn.start, np.zeros(gap, values.dtype))
    return values


@settings(max_examples=40, deadline=None)
@given(groups=steps(may_fail=False), outcome=st.floats(-10, 10))
def test_terminal_reward_reaches_every_token_whole_where_nothing_discounts_it(
    groups: list[Group], outcome: float
) -> None:
    for trajectory in groups[0].trajectories:
        ended = with_reward(trajectory, outcome)
        assert (returns_to_go(ended, NOTHING) == outcome).all()
        targets = component("gae")
        assert isinstance(targets, ValueTargets)
        step = Group("g0", ended.task, (ended,))
        (found,) = targets.value_targets([step], annotated([step]))[0]
        assert found[ended.sampled] == pytest.approx(np.float32(outcome), abs=1e-5)


@settings(max_examples=40, deadline=None)
@given(groups=steps(min_size=2))
def test_samples_carry_the_credit_on_the_tokens_that_are_trained(groups: list[Group]) -> None:
    arrays = component("per_step")(groups, NOTHING)
    by_id = {
        t.trajectory_id: array
        for step, arrays_G in zip(groups, arrays, strict=True)
        for t, array in zip(step.trajectories, arrays_G, strict=True)
    }
    for sample in to_samples(groups, arrays).samples:
        assert sample.advantages.tolist() == by_id[sample.trajectory_id].tolist()
        assert not sample.advantages[~sample.trainable].any()
