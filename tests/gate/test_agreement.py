from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain.gate.agreement import Estimate, Stratum, cohens_kappa, recall, stratified_share, wilson


@pytest.mark.parametrize(
    ("share", "n", "low", "high"),
    [(0.0, 10, 0.0, 0.2775), (1.0, 10, 0.7225, 1.0), (0.5, 10, 0.2366, 0.7634), (0.9, 100, 0.8256, 0.9448)],
)
def test_wilson_is_the_published_interval(share: float, n: int, low: float, high: float) -> None:
    assert wilson(share, n) == pytest.approx((low, high), abs=1e-4)


def test_a_stratum_counts_by_its_size_and_not_by_its_labels() -> None:
    found = stratified_share([Stratum(900, 10, 1.0), Stratum(100, 10, 0.0)])
    assert found is not None
    assert found.value == pytest.approx(0.9)
    assert found.ci95[0] < 0.75, "20 labels are not 1000"
    assert found.num_labels == 20


def test_one_stratum_with_labels_is_a_plain_share_and_the_rest_is_said_to_be_unknown() -> None:
    found = stratified_share([Stratum(50, 8, 0.25), Stratum(150, 0, 0.0)])
    assert found is not None
    assert (found.value, found.covered) == (0.25, 0.25)
    assert found.ci95 == pytest.approx(wilson(0.25, 8))
    assert stratified_share([Stratum(50, 0, 0.0)]) is None
    assert stratified_share([]) is None


def test_the_interval_holds_the_truth_in_about_95_of_100_samples() -> None:
    draws = random.Random(5)
    strata = [(600, 0.95, 12), (300, 0.7, 12), (100, 0.2, 12)]
    truth = sum(size * share for size, share, _ in strata) / 1000
    held = 0
    for _ in range(400):
        found = stratified_share(
            [Stratum(size, n, sum(draws.random() < share for _ in range(n)) / n) for size, share, n in strata]
        )
        assert found is not None
        held += found.ci95[0] <= truth <= found.ci95[1]
    assert held >= 0.93 * 400


def test_recall_weighs_what_was_missed_by_how_much_was_refused() -> None:
    accepted = Estimate(1.0, (0.9, 1.0), 30, 1.0)
    missed = Estimate(0.1, (0.05, 0.2), 30, 1.0)
    found = recall(accepted, 100, missed, 900)
    assert found is not None
    assert found.value == pytest.approx(100 / 190)
    assert found.ci95 == pytest.approx((90 / (90 + 180), 100 / (100 + 45)))
    assert recall(accepted, 100, None, 900) is None, "nobody looked at what was refused"
    assert recall(Estimate(0.0, (0.0, 0.1), 9, 1.0), 10, Estimate(0.0, (0.0, 0.1), 9, 1.0), 10) is None


def test_kappa_is_cohens() -> None:
    table = {("yes", "yes"): 20, ("yes", "no"): 5, ("no", "yes"): 10, ("no", "no"): 15}
    pairs = list(itertools.chain.from_iterable([pair] * n for pair, n in table.items()))
    assert cohens_kappa(pairs) == pytest.approx(0.4)
    assert cohens_kappa([("a", "a"), ("b", "b")]) == 1.0
    assert cohens_kappa([("a", "b"), ("b", "a")]) == -1.0
    assert cohens_kappa([]) is None
    assert cohens_kappa([("a", "a")] * 5) is None


@given(st.lists(st.tuples(st.integers(1, 500), st.integers(0, 30), st.floats(0, 1)), min_size=1, max_size=6))
def test_an_estimate_lies_in_its_interval_within_0_and_1(rows: list[tuple[int, int, float]]) -> None:
    found = stratified_share([Stratum(size, labels, share) for size, labels, share in rows])
    if found is not None:
        low, high = found.ci95
        assert 0.0 <= low <= found.value + 1e-9
        assert found.value - 1e-9 <= high <= 1.0
        assert math.isfinite(found.covered)
