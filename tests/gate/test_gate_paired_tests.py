"""p-values of a decline: exact where they can be, honest where few tasks changed."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, ttest_1samp

from posttrain.gate.paired_tests import bootstrap_p, decline_p, mcnemar_p


@settings(deadline=None)
@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_is_scipys_binomial_test(lost: int, won: int) -> None:
    expected = binomtest(lost, lost + won, alternative="greater").pvalue if lost + won else 1.0
    assert mcnemar_p(lost, won) == pytest.approx(expected, rel=1e-9)


def test_mcnemar_counts_sign_patterns() -> None:
    for lost, won in [(3, 1), (5, 0), (2, 6)]:
        patterns = itertools.product((0, 1), repeat=lost + won)
        as_bad = sum(sum(pattern) >= lost for pattern in patterns)
        assert mcnemar_p(lost, won) == pytest.approx(as_bad / 2 ** (lost + won))


def test_bootstrap_agrees_with_students_test_on_many_tasks() -> None:
    values = np.random.default_rng(2).choice([-0.5, -0.25, 0.0, 0.25, 0.5], p=[0.15, 0.2, 0.4, 0.15, 0.1], size=400)
    expected = ttest_1samp(values, 0.0, alternative="less").pvalue
    assert bootstrap_p(values, seed=0) == pytest.approx(expected, abs=0.01)


def test_attempts_at_one_task_do_not_count_as_tasks() -> None:
    one_attempt = [-1.0] * 8 + [1.0] * 2
    assert decline_p(one_attempt, samples=1, seed=0) == mcnemar_p(8, 2)
    assert decline_p([value / 4 for value in one_attempt], samples=4, seed=0) == bootstrap_p(one_attempt, seed=0)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_few_tasks_that_fell_alike_are_as_surprising_as_coins(n: int) -> None:
    assert bootstrap_p([-0.25] * n + [0.0] * 50, seed=0) >= 0.5**n
    assert bootstrap_p([-0.25] * n, seed=0) == 0.5**n


def test_nothing_changed_is_no_decline() -> None:
    assert decline_p([0.0] * 9, samples=4, seed=0) == decline_p([0.0] * 9, samples=1, seed=0) == 1.0


def test_p_values_of_no_change_are_not_too_small() -> None:
    rng = np.random.default_rng(3)
    p = np.array(
        [
            decline_p((rng.binomial(4, a := rng.beta(1, 1, 64)) - rng.binomial(4, a)) / 4, samples=4, seed=i)
            for i in range(150)
        ]
    )
    for level in (0.05, 0.2, 0.5):
        assert (p <= level).mean() <= level + 3 * math.sqrt(level * (1 - level) / 150)
