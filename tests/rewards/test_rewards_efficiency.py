"""What is saved: relative to correct siblings or to a budget, one-sided, bounded."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rewards.parts import FAILURE, attempt, group

from posttrain.core.types import Cost, Group, Trajectory, Verdict
from posttrain.rewards.efficiency import cost_of, saved, savings

COST = st.floats(0.0, 1e6)
WRONG = Verdict.incorrect("other number")


def used(tokens: int, place: int, verdict: Verdict | None = None) -> Trajectory:
    built = attempt(1.0, name=f"g/{place}", cost=Cost(num_sampled_tokens=tokens))
    return replace(built, verdict=verdict or Verdict.correct())


def tokens(*counts: int) -> Group:
    return group(*(used(count, place) for place, count in enumerate(counts)))


@given(cost=COST, reference=COST, more=COST)
def test_a_saving_lies_between_0_and_1_and_never_grows_with_the_cost(
    cost: float, reference: float, more: float
) -> None:
    assert 0.0 <= saved(cost + more, reference) <= saved(cost, reference) <= 1.0


def test_the_median_of_correct_siblings_is_where_nothing_is_earned() -> None:
    assert savings(tokens(5, 10, 40), "tokens") == {"g/0": 0.5, "g/1": 0.0, "g/2": 0.0}


def test_equal_costs_and_a_single_correct_attempt_earn_nothing() -> None:
    assert set(savings(tokens(7, 7, 7), "tokens").values()) == {0.0}
    alone = group(used(3, 0), used(50, 1, WRONG), used(60, 2, WRONG))
    assert savings(alone, "tokens") == {"g/0": 0.0}


def test_wrong_and_unscored_attempts_are_no_reference_and_have_no_saving() -> None:
    mixed = group(used(10, 0), used(20, 1), used(1, 2, WRONG), replace(used(1, 3), failure=FAILURE))
    assert savings(mixed, "tokens") == {"g/0": pytest.approx(1 / 3), "g/1": 0.0}


def test_a_budget_stands_in_for_the_siblings() -> None:
    assert savings(tokens(5, 20, 30), "tokens", budget=20.0) == {"g/0": 0.75, "g/1": 0.0, "g/2": 0.0}


def test_costs_are_tokens_tool_calls_and_seconds() -> None:
    cost = Cost(num_sampled_tokens=7, wall_s=1.5, sandbox_s=0.25)
    three_turns = attempt(1.0, turns=(2, 2, 2), cost=cost)
    found = [cost_of(three_turns, name) for name in ("tokens", "tool_calls", "wall_s", "sandbox_s")]
    assert found == [7.0, 2.0, 1.5, 0.25]


def test_more_calls_never_earn_more() -> None:
    calls = group(*(attempt(1.0, turns=(1,) * (n + 1), name=f"g/{n}") for n in range(4)))
    found = list(savings(calls, "tool_calls").values())
    assert found == sorted(found, reverse=True)
    assert savings(group(attempt(1.0), attempt(1.0, name="g/1")), "tool_calls") == {"g/0": 0.0, "g/1": 0.0}
