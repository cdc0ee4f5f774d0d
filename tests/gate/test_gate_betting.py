"""The wealth of a gambler who bets on a decline: a supermartingale where there is none, large where there is one."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.gate.betting import BETS, anytime_p, log_wealth, log_wealth_of_counts
from posttrain.gate.looks import look_weight
from posttrain.gate.statistics import Floats

differences = st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.25, 1.0]), max_size=30)


@pytest.mark.parametrize("margin", [0.0, 0.1])
@pytest.mark.parametrize("chances", [(0.5, 0.0, 0.5), (0.1, 0.8, 0.1), (0.05, 0.0, 0.95)])
def test_expected_wealth_is_one_by_enumeration_of_all_outcomes(chances: tuple[float, ...], margin: float) -> None:
    """Three-valued differences whose mean is exactly -margin: the last value is placed so that it is."""
    low, middle = -1.0, 0.0
    high = (-margin - chances[0] * low - chances[1] * middle) / chances[2]
    expected = 0.0
    for outcome in itertools.product(range(3), repeat=5):
        wealth = math.exp(log_wealth([(low, middle, high)[i] for i in outcome], margin=margin))
        expected += math.prod(chances[i] for i in outcome) * wealth
    assert expected == pytest.approx(1.0, abs=1e-9)


@settings(deadline=None)
@given(differences, st.randoms())
def test_the_order_of_the_tasks_does_not_matter(values: list[float], random: object) -> None:
    shuffled = list(values)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert log_wealth(shuffled) == pytest.approx(log_wealth(values), abs=1e-9)


@settings(deadline=None)
@given(differences)
def test_a_task_that_was_lost_adds_evidence_and_one_that_was_won_takes_some(values: list[float]) -> None:
    assert log_wealth([*values, -1.0]) > log_wealth(values) > log_wealth([*values, 1.0])
    assert log_wealth([*values, 0.0]) == pytest.approx(log_wealth(values), abs=1e-9), "no change says nothing"
    assert log_wealth(values, margin=0.1) <= log_wealth(values) + 1e-9 or not values


def test_wealth_is_the_mean_over_bets_of_the_products() -> None:
    by_hand = np.mean([(1 + bet) * (1 - bet / 2) for bet in BETS])
    assert log_wealth([-1.0, 0.5]) == pytest.approx(math.log(by_hand))
    assert log_wealth([]) == 0.0


def ever_reached(draw: Floats, alpha: float, looks: int = 16) -> float:
    """Share of rows [R, n] whose wealth reached 1/alpha at any of the looks."""
    values = np.unique(draw)
    ends = np.linspace(1, draw.shape[1], looks).astype(int)
    highest = np.full(len(draw), -np.inf)
    for end in ends:
        counts = np.stack([(draw[:, :end] == value).sum(axis=1) for value in values], axis=1).astype(float)
        highest = np.maximum(highest, log_wealth_of_counts(values, counts))
    return float((highest >= -math.log(alpha)).mean())


def test_looking_whenever_one_likes_does_not_raise_false_alarms_however_skewed_the_differences() -> None:
    rng = np.random.default_rng(5)
    coins = rng.choice([-1.0, 1.0], size=(4000, 256))
    rare_losses = rng.choice([-1.0, 0.05], p=[1 / 21, 20 / 21], size=(4000, 256))
    rare_wins = rng.choice([-0.05, 1.0], p=[20 / 21, 1 / 21], size=(4000, 256))
    for draw in (coins, rare_losses, rare_wins):
        assert ever_reached(draw, 0.05) <= 0.05


def test_a_loss_is_found() -> None:
    draw = np.random.default_rng(6).choice([-1.0, 0.0, 1.0], p=[0.35, 0.6, 0.05], size=(500, 256))
    assert ever_reached(draw, 0.001) > 0.99


def test_weights_of_any_number_of_looks_sum_to_at_most_one() -> None:
    for planned in (1, 3, 20):
        weights = [look_weight(look, planned) for look in range(1, 5000)]
        assert 0.999 < sum(weights) <= 1.0
        assert all(earlier >= later > 0.0 for earlier, later in itertools.pairwise(weights[planned:]))


def test_an_anytime_p_value_is_what_the_wealth_and_the_budget_leave() -> None:
    assert anytime_p(math.log(40.0)) == pytest.approx(1 / 40)
    assert anytime_p(math.log(40.0), 0.5) == pytest.approx(1 / 20)
    assert anytime_p(-3.0) == 1.0
