"""Generalised advantages over trainable tokens, against the sum that defines them."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rewards.parts import annotated, attempt, group, siblings, steps

from posttrain.core.errors import NonFiniteError
from posttrain.core.protocols import Advantage, ValueTargets
from posttrain.core.types import Annotations, Group
from posttrain.rewards.gae import GAE
from posttrain.rewards.token_rewards import returns_to_go, token_rewards


def values_of(groups: list[Group], value: float) -> Annotations:
    attempts = [t for group in groups for t in group.trajectories]
    return Annotations(values={t.trajectory_id: np.where(t.sampled, np.float32(value), 0.0) for t in attempts})


@settings(max_examples=60, deadline=None)
@given(groups=steps(may_fail=False), gamma=st.sampled_from([1.0, 0.9]), lam=st.sampled_from([0.0, 0.5, 1.0]))
def test_it_is_the_discounted_sum_of_temporal_differences(groups: list[Group], gamma: float, lam: float) -> None:
    notes = annotated(groups, kl=0.2)
    arrays = GAE(gamma, lam, whiten=False, clip=1e6)(groups, notes)
    tried = groups[0].trajectories[0]
    rewards, values = token_rewards(tried, notes), notes.values[tried.trajectory_id][tried.sampled]
    following = [*values[1:], 0.0]
    deltas = [r + gamma * after - v for r, after, v in zip(rewards, following, values, strict=True)]
    expected = [
        sum((gamma * lam) ** (later - here) * deltas[later] for later in range(here, len(deltas)))
        for here in range(len(deltas))
    ]
    assert arrays[0][0][tried.sampled] == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_credit_crosses_the_turns_over_trainable_tokens_alone() -> None:
    """What stands between two turns discounts nothing: the same as one turn of as many tokens."""
    parted, whole = [group(attempt(1.0, [2, 1, 2]))], [group(attempt(1.0, [5]))]
    component = GAE(gamma=0.9, lam=0.5, whiten=False)
    one = component(parted, values_of(parted, 0.25))[0][0][parted[0].trajectories[0].sampled]
    other = component(whole, values_of(whole, 0.25))[0][0][whole[0].trajectories[0].sampled]
    assert one.tolist() == other.tolist()


def test_with_lambda_one_it_is_the_return_minus_the_value() -> None:
    groups = [siblings([1.0, 0.0], [[3], [1]])]
    notes = annotated(groups)
    arrays = GAE(whiten=False)(groups, notes)
    for array, tried in zip(arrays[0], groups[0].trajectories, strict=True):
        expected = returns_to_go(tried, notes) - notes.values[tried.trajectory_id][tried.sampled]
        assert array[tried.sampled] == pytest.approx(expected, abs=1e-6)


def test_nothing_is_earned_or_expected_after_the_last_token() -> None:
    groups = [group(attempt(0.0, [1]))]
    assert GAE(whiten=False)(groups, values_of(groups, 0.75))[0][0].tolist() == [0, 0, -0.75]


def test_targets_are_advantage_plus_value_before_whitening_and_clip() -> None:
    groups = [siblings([1.0, 0.0], [[3], [1]])]
    notes = annotated(groups)
    raw = GAE(lam=0.5, whiten=False, clip=1e6)(groups, notes)
    targets = GAE(lam=0.5, whiten=True, clip=0.1).value_targets(groups, notes)
    for target, advantage, tried in zip(targets[0], raw[0], groups[0].trajectories, strict=True):
        values = np.where(tried.sampled, notes.values[tried.trajectory_id], 0.0)
        assert target == pytest.approx(advantage + values, abs=1e-6)
        assert not target[~tried.sampled].any()


def test_with_lambda_one_the_critic_is_to_predict_the_return() -> None:
    groups = [group(attempt(1.0, [1, 2], turn_rewards=[0.5]))]
    assert GAE().value_targets(groups, annotated(groups))[0][0] == pytest.approx([0, 0, 1.5, 0, 1.0, 1.0])


def test_whitened_over_all_tokens_of_the_step() -> None:
    groups = [siblings([1.0, 0.0], [[3], [1]], name="a"), siblings([0.0], [[2]], name="b", index=1)]
    arrays = GAE()(groups, values_of(groups, 0.0))
    rows = [array for arrays_G in arrays for array in arrays_G]
    attempts = [t for group in groups for t in group.trajectories]
    tokens = np.concatenate([row[t.sampled] for t, row in zip(attempts, rows, strict=True)])
    assert tokens.mean() == pytest.approx(0.0, abs=1e-6)
    assert tokens.std(ddof=1) == pytest.approx(1.0, abs=1e-3)


def test_attempts_without_a_verdict_need_no_values_and_get_no_targets() -> None:
    groups = [siblings([1.0, None])]
    values = values_of(groups, 0.5).values
    notes = Annotations(values={"g/0": values["g/0"]})
    assert not GAE()(groups, notes)[0][1].any()
    assert not GAE().value_targets(groups, notes)[0][1].any()


def test_missing_values_are_our_own_mistake() -> None:
    with pytest.raises(AssertionError, match="no values of trajectory g/0"):
        GAE()([siblings([1.0])], Annotations())


def test_value_that_is_not_finite_is_refused_by_name() -> None:
    groups = [siblings([1.0])]
    with pytest.raises(NonFiniteError, match="values of trajectory g/0"):
        GAE()(groups, values_of(groups, float("nan")))


@pytest.mark.parametrize("options", [{"gamma": 0.0}, {"gamma": 1.5}, {"lam": -0.1}, {"lam": 1.1}, {"clip": 0.0}])
def test_options_that_mean_nothing_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        dataclasses.replace(GAE(), **options)


def test_it_follows_the_seams() -> None:
    component: Advantage = GAE()
    assert component([], Annotations()) == []
    assert component.needs_values
    assert isinstance(component, ValueTargets)
