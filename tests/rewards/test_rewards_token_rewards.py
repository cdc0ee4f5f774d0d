"""What each sampled token earned: placed by recorded lengths, counted once, conserved (laws L10, L12)."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rewards.parts import NOTHING, annotated, attempt, steps

from posttrain.core.errors import NonFiniteError
from posttrain.core.types import Group, Turn
from posttrain.rewards.token_rewards import on_tokens, returns_to_go, token_rewards, total_reward


def test_outcome_is_earned_by_the_last_sampled_token() -> None:
    assert token_rewards(attempt(1.0, [2, 3]), NOTHING).tolist() == [0, 0, 0, 0, 1.0]


def test_turn_that_went_on_earns_on_its_own_last_token() -> None:
    tried = attempt(1.0, [2, 1, 2], turn_rewards=[0.25, -0.5])
    assert token_rewards(tried, NOTHING).tolist() == [0, 0.25, -0.5, 0, 1.0]
    assert total_reward(tried, NOTHING) == 0.75


def test_last_turns_own_reward_is_the_outcome_and_is_not_added_again() -> None:
    tried = attempt(1.0, [2])
    assert tried.turns[-1].reward == 1.0
    assert total_reward(tried, NOTHING) == 1.0


def test_turn_that_was_cut_off_before_the_environment_was_done_keeps_its_reward() -> None:
    tried = attempt(0.0, [2])
    cut = dataclasses.replace(tried, turns=(dataclasses.replace(tried.turns[0], reward=0.5, done=False),))
    assert token_rewards(cut, NOTHING).tolist() == [0, 0.5]


def test_tokens_after_the_last_sampled_one_change_nothing() -> None:
    tried = attempt(1.0, [2])
    fields: dict[str, Any] = {
        name: np.append(getattr(tried, name), np.zeros(3)).astype(getattr(tried, name).dtype)
        for name in ("tokens", "sampled", "behavior_logprobs", "versions")
    }
    longer = dataclasses.replace(tried, **fields)
    assert token_rewards(longer, NOTHING).tolist() == [0, 1.0]


def test_turn_without_a_token_earns_on_the_token_before_it() -> None:
    tried = attempt(1.0, [2, 2])
    first, last = tried.turns
    empty = Turn(first.end, first.end, 0.5, done=False)
    both = dataclasses.replace(tried, turns=(first, empty, last))
    assert token_rewards(both, NOTHING).tolist() == [0, 0.5, 0, 1.0]


def test_attempt_without_a_sampled_token_still_earned_its_reward() -> None:
    nothing_sampled = attempt(0.5, [0])
    assert len(token_rewards(nothing_sampled, NOTHING)) == 0
    assert total_reward(nothing_sampled, NOTHING) == 0.5


@settings(max_examples=60, deadline=None)
@given(groups=steps(may_fail=False), kl=st.sampled_from([0.0, 0.3]))
def test_what_the_tokens_earned_is_what_the_attempt_earned(groups: list[Group], kl: float) -> None:
    notes = annotated(groups, kl=kl)
    for tried in groups[0].trajectories:
        rewards = token_rewards(tried, notes)
        assert len(rewards) == tried.sampled.sum()
        assert rewards.sum() == pytest.approx(total_reward(tried, notes), abs=1e-9)
        assert returns_to_go(tried, notes)[0] == pytest.approx(total_reward(tried, notes), abs=1e-9)


def test_return_of_a_token_is_what_is_earned_from_it_on() -> None:
    tried = attempt(1.0, [2, 1], turn_rewards=[0.25])
    assert returns_to_go(tried, NOTHING).tolist() == [1.25, 1.25, 1.0]


def test_values_go_back_to_sampled_tokens_only() -> None:
    tried = attempt(1.0, [1, 2])
    array = on_tokens(tried, np.asarray([1.0, 2.0, 3.0]))
    assert array.dtype == np.float32
    assert array.tolist() == [0, 0, 1, 0, 2, 3]
    assert on_tokens(tried, 0.5).tolist() == [0, 0, 0.5, 0, 0.5, 0.5]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_reward_of_a_turn_that_is_not_finite_is_refused_by_name(bad: float) -> None:
    with pytest.raises(NonFiniteError, match="the reward of trajectory g/0 is"):
        token_rewards(attempt(1.0, [1, 1], turn_rewards=[bad]), NOTHING)
