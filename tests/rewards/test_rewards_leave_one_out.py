"""RLOO's advantage: its siblings are the baseline, and by enumeration its policy gradient is unbiased."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rewards.parts import NOTHING, component, credit, siblings

from posttrain.rewards.group_mean import GroupMean
from posttrain.rewards.leave_one_out import LeaveOneOut


def test_baseline_is_the_mean_of_the_others() -> None:
    three = siblings([1.0, 0.0, 0.5], [[1], [4], [2]])
    assert credit(LeaveOneOut()([three], NOTHING)[0], three) == [0.75, -0.75, 0.0]


@settings(max_examples=60, deadline=None)
@given(rewards=st.lists(st.floats(-1, 1), min_size=2, max_size=8))
def test_it_is_the_group_mean_times_g_over_g_minus_one(rewards: list[float]) -> None:
    group = siblings(rewards)
    others = credit(LeaveOneOut()([group], NOTHING)[0], group)
    mean = credit(GroupMean()([group], NOTHING)[0], group)
    assert others == pytest.approx([len(rewards) / (len(rewards) - 1) * value for value in mean], abs=1e-6)


def test_attempts_without_a_verdict_are_not_among_the_others() -> None:
    some = siblings([1.0, None, 0.0])
    assert credit(LeaveOneOut()([some], NOTHING)[0], some) == [1.0, 0.0, -1.0]


@pytest.mark.parametrize(("name", "shrunk"), [("leave_one_out", 1.0), ("group_mean", 2 / 3)])
def test_expected_policy_gradient_of_a_group_is_the_true_one(name: str, shrunk: float) -> None:
    """Over all groups of three replies from three: the group's own mean shrinks it by (G − 1)/G, the others' do not."""
    logits, rewards, size = np.asarray([0.3, -0.4, 0.8]), [0.0, 1.0, 0.25], 3
    chances = np.exp(logits) / np.exp(logits).sum()
    scores = np.eye(3) - chances  # ∇ log chance of each reply
    true = sum(chances[reply] * rewards[reply] * scores[reply] for reply in range(3))
    advantage = component(name)
    found = np.zeros(3)
    for replies in product(range(3), repeat=size):
        group = siblings([rewards[reply] for reply in replies])
        mine = credit(advantage([group], NOTHING)[0], group)
        chance = np.prod(chances[list(replies)])
        found += chance * sum(a * scores[reply] for a, reply in zip(mine, replies, strict=True)) / size
    assert found == pytest.approx(shrunk * true, abs=1e-7)
