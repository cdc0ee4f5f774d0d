"""REINFORCE++: each token's return, whitened over the step's trainable tokens."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rewards.parts import NOTHING, annotated, attempt, credit, group, siblings, steps

from posttrain.core.types import Group
from posttrain.rewards.batch_whitened import BatchWhitened
from posttrain.rewards.token_rewards import returns_to_go


def all_tokens(groups: list[Group], arrays: list[list[np.ndarray]]) -> np.ndarray:
    attempts = [t for group in groups for t in group.trajectories]
    rows = [array for arrays_G in arrays for array in arrays_G]
    return np.concatenate([row[t.sampled] for t, row in zip(attempts, rows, strict=True) if t.scored] or [np.zeros(0)])


def test_mean_and_spread_are_over_tokens_of_all_groups() -> None:
    groups = [siblings([1.0, 0.0], [[3], [1]], name="a"), siblings([0.0], [[4]], name="b", index=1)]
    arrays = BatchWhitened()(groups, NOTHING)
    values = np.asarray([1.0] * 3 + [0.0] * 5)  # eight tokens, three of them of the solved attempt
    expected = (values - 3 / 8) / (values.std(ddof=1) + 1e-4)
    assert all_tokens(groups, arrays) == pytest.approx(expected, rel=1e-5)


@settings(max_examples=60, deadline=None)
@given(groups=steps(), kl=st.sampled_from([0.0, 0.2]))
def test_tokens_of_a_step_have_mean_zero_and_unit_spread(groups: list[Group], kl: float) -> None:
    tokens = all_tokens(groups, BatchWhitened(clip=1e3)(groups, annotated(groups, kl=kl)))
    if len(tokens) > 1:
        assert tokens.mean() == pytest.approx(0.0, abs=1e-4)
        assert tokens.std(ddof=1) <= 1.001


def test_later_tokens_do_not_pay_for_earlier_ones() -> None:
    tried = group(attempt(1.0, [1, 1], turn_rewards=[5.0]))
    (array,) = BatchWhitened()([tried], NOTHING)[0]
    first, second = array[tried.trajectories[0].sampled]
    assert first == pytest.approx(-second)
    assert first > 0.0


def test_kl_is_whitened_with_the_rewards_token_by_token() -> None:
    groups = [siblings([1.0, 0.0], [[3], [2]])]
    notes = annotated(groups, kl=0.1)
    arrays = BatchWhitened()(groups, notes)
    returns = np.concatenate([returns_to_go(t, notes) for t in groups[0].trajectories])
    expected = (returns - returns.mean()) / (returns.std(ddof=1) + 1e-4)
    assert all_tokens(groups, arrays) == pytest.approx(expected, rel=1e-5)


def test_with_a_group_baseline_hard_and_easy_tasks_pull_alike() -> None:
    hard, easy = siblings([1.0, 0.0], name="a"), siblings([11.0, 10.0], name="b", index=1)
    arrays = BatchWhitened(group_baseline=True)([hard, easy], NOTHING)
    assert credit(arrays[0], hard) == pytest.approx(credit(arrays[1], easy))
    assert credit(arrays[0], hard)[0] > 0.0


def test_group_baseline_is_the_mean_over_attempts_and_not_over_tokens() -> None:
    pair = siblings([1.0, 0.0], [[1], [3]])
    first, second = credit(BatchWhitened(group_baseline=True)([pair], NOTHING)[0], pair)
    assert first == pytest.approx(-second)
    assert first == pytest.approx(0.5 / (np.sqrt(4 * 0.25 / 3) + 1e-4), rel=1e-5)


def test_clip_bounds_the_result() -> None:
    groups = [siblings([100.0, *[0.0] * 9])]
    assert np.abs(all_tokens(groups, BatchWhitened(clip=0.25)(groups, NOTHING))).max() == 0.25
