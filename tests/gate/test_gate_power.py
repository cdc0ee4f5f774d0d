"""The power that is computed is the power that there is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multinomial

from posttrain.gate.betting import log_wealth_of_counts
from posttrain.gate.power import Differences, detectable, log_threshold, observed, power, tasks_needed
from posttrain.gate.statistics import Floats


def binary(lost: float, won: float) -> Differences:
    return Differences(1, np.array([lost, 1.0 - lost - won, won]))


@pytest.mark.parametrize(("n", "log_wealth"), [(48, 3.0), (64, 8.0), (100, 2.0)])
@pytest.mark.parametrize("lost", [0.2, 0.4])
def test_power_of_one_attempt_a_task_is_that_of_enumerating_all_counts(n: int, log_wealth: float, lost: float) -> None:
    of = binary(lost, 0.1)
    counts = np.array([(a, n - a - b, b) for a in range(n + 1) for b in range(n + 1 - a)], dtype=float)
    chances = multinomial.pmf(counts, n, of.chances)
    exact = chances[log_wealth_of_counts(of.values, counts) >= log_wealth].sum()
    assert power(of, n, log_wealth) == pytest.approx(exact, abs=0.04)


@pytest.mark.parametrize(("n", "samples", "loss"), [(128, 4, 0.1), (256, 1, 0.1), (512, 4, 0.05)])
@pytest.mark.parametrize("hypotheses", [1, 4])
def test_power_agrees_with_simulation(n: int, samples: int, loss: float, hypotheses: int) -> None:
    rng = np.random.default_rng(0)
    ability = rng.beta(2, 2, (6000, n)) * 0.8 + 0.1
    raw = rng.binomial(samples, np.clip(ability - loss, 0, 1)) - rng.binomial(samples, ability)
    counts = np.stack([(raw == v).sum(axis=1) for v in range(-samples, samples + 1)], axis=1).astype(float)
    of = Differences(samples, counts.sum(axis=0) / counts.sum())
    threshold = log_threshold(0.05, weight=1.0, hypotheses=hypotheses)
    seen = float((log_wealth_of_counts(of.values, counts) >= threshold).mean())
    assert power(of, n, threshold) == pytest.approx(seen, abs=0.03)


spreads = st.lists(st.sampled_from([-1.0, -0.5, -0.25, 0.0, 0.0, 0.25, 0.75]), min_size=8, max_size=40)


@settings(deadline=None, max_examples=25)
@given(spreads)
def test_more_tasks_detect_smaller_losses_and_stricter_gates_larger_ones(values: list[float]) -> None:
    of = observed(values, 4)
    few, many = detectable(of, 64, 3.0), detectable(of, 512, 3.0)
    assert few is not None
    assert many is not None
    assert many < few
    strict = detectable(of, 512, 9.0)
    assert strict is None or strict > many


def test_a_detectable_loss_is_found_four_times_in_five() -> None:
    of = observed([-0.25, 0.0, 0.25, 0.5, 0.0], 4)
    found = detectable(of, 200, 5.0)
    assert found is not None
    assert power(of.with_mean(-found), 200, 5.0) == pytest.approx(0.8, abs=0.03)


def test_tasks_needed_are_enough_and_few_fewer_are_not() -> None:
    of = observed([-0.25, 0.0, 0.25, 0.5, 0.0], 4)
    n = tasks_needed(of, 0.05, 5.0)
    assert n is not None
    lost = of.with_mean(-0.05)
    assert power(lost, n, 5.0) >= 0.8 > power(lost, int(n * 0.95), 5.0)
    assert tasks_needed(of, 1e-4, 5.0) is None


def test_too_few_tasks_detect_nothing_at_all() -> None:
    assert detectable(observed([0.0], 1), 3, log_threshold(0.05, weight=0.05, hypotheses=200)) is None


def test_planning_does_not_know_which_way_the_pairs_went() -> None:
    lost: Floats = np.array([-0.5, -0.5, 0.0, 0.25])
    assert np.array_equal(observed(lost, 4).chances, observed(-lost, 4).chances)
    assert observed(lost, 4).mean == pytest.approx(0.0)
    assert observed([0.123], 4).steps == 100, "scores off the attempts' grid get a fine one"
