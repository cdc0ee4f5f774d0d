"""Intervals cover what they claim to cover, and pairs are pairs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.core.types import EvalReport, ItemScore
from posttrain.gate.score import score_report
from posttrain.gate.statistics import Z95, combined, mean_interval, paired_gain
from posttrain.gate.suite import suite_hash


def report(scores: Mapping[str, Sequence[Sequence[float]]], label: str = "base") -> EvalReport:
    """Of `{domain: [[attempt scores] per task]}`."""
    items = [
        ItemScore(domain, f"{domain}-{number}", tuple(attempts), None, (), 0, 0, 0)
        for domain, tasks in scores.items()
        for number, attempts in enumerate(tasks)
    ]
    suite_id = suite_hash(item.task_id for item in items)
    constants = dict.fromkeys(scores, 0.0)
    return score_report(
        items, label=label, model="m", version=0, suite_id=suite_id, best_constant=constants, wall_s=0.0
    )


def rescored(suite: EvalReport, scores: npt.NDArray[np.float64]) -> EvalReport:
    """The report with one attempt a task and these scores; its summary is left as it was."""
    items = [replace(item, scores=(float(score),)) for item, score in zip(suite.items, scores, strict=True)]
    return replace(suite, items=tuple(items))


def wilson(successes: int, n: int) -> tuple[float, float]:
    p, z2 = successes / n, Z95**2
    centre, half = p + z2 / (2 * n), Z95 * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n))
    return (centre - half) / (1 + z2 / n), (centre + half) / (1 + z2 / n)


@pytest.mark.parametrize("n", [1, 8, 128])
@pytest.mark.parametrize("score", [0.0, 1.0])
def test_perfect_and_hopeless_scores_get_wilsons_interval(score: float, n: int) -> None:
    interval = mean_interval([score] * n, lowest=0.0, highest=1.0, seed=0)
    assert interval == pytest.approx(wilson(int(score) * n, n))


def test_equal_scores_anywhere_have_an_interval_of_some_width() -> None:
    low, high = mean_interval([0.5] * 128, lowest=0.0, highest=1.0, seed=0)
    assert low < 0.5 < high


def test_one_odd_task_does_not_make_the_interval_narrower_than_none() -> None:
    none = mean_interval([0.0] * 128, lowest=0.0, highest=1.0, seed=0)
    one = mean_interval([0.25] + [0.0] * 127, lowest=0.0, highest=1.0, seed=0)
    assert one[1] >= none[1]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), min_size=1, max_size=40))
def test_interval_holds_the_mean_stays_in_range_and_forgets_the_order(values: list[float]) -> None:
    low, high = mean_interval(values, lowest=0.0, highest=1.0, seed=1)
    assert 0.0 <= low <= sum(values) / len(values) <= high <= 1.0
    assert mean_interval(sorted(values), lowest=0.0, highest=1.0, seed=1) == (low, high)


def test_interval_is_the_usual_one_where_scores_vary() -> None:
    values = np.random.default_rng(0).binomial(4, 0.5, 400) / 4
    low, high = mean_interval(values.tolist(), lowest=0.0, highest=1.0, seed=0)
    assert (high - low) / 2 == pytest.approx(Z95 * values.std() / math.sqrt(400), rel=0.03)


def coverage(alpha: float, beta: float, tasks: int, trials: int = 200) -> float:
    """Share of simulated suites (4 attempts a task, abilities Beta-distributed) whose interval holds the truth."""
    rng = np.random.default_rng(7)
    covered = 0
    for trial in range(trials):
        scores = rng.binomial(4, rng.beta(alpha, beta, tasks)) / 4
        low, high = mean_interval(scores.tolist(), lowest=0.0, highest=1.0, seed=trial)
        covered += low <= alpha / (alpha + beta) <= high
    return covered / trials


def test_intervals_cover_the_true_mean_nineteen_times_in_twenty() -> None:
    assert 0.92 <= coverage(0.4, 0.6, tasks=96) <= 0.99


@pytest.mark.parametrize(("alpha", "beta"), [(0.02, 2.0), (2.0, 0.05)])
def test_intervals_near_the_ends_of_the_scale_cover_at_least_as_often(alpha: float, beta: float) -> None:
    assert coverage(alpha, beta, tasks=32) >= 0.95


def test_combining_adds_errors_in_quadrature() -> None:
    mean, interval = combined([0.2, 0.6], [(0.17, 0.24), (0.56, 0.63)])
    assert mean == pytest.approx(0.4)
    assert interval == pytest.approx((0.4 - 0.025, 0.4 + 0.025))


def test_combining_one_mean_leaves_it_as_it_is() -> None:
    mean, interval = combined([0.25], [(0.125, 0.5)])
    assert (mean, interval) == (0.25, (0.125, 0.5))


def test_gain_is_the_mean_over_domains_whatever_their_sizes() -> None:
    before = report({"small": [[0.0, 0.0]] * 10, "large": [[0.5, 0.5]] * 90})
    after = report({"small": [[1.0, 0.0]] * 10, "large": [[0.5, 0.5]] * 90}, "rl")
    gain = paired_gain(before, after)
    assert gain.mean == pytest.approx(0.25)
    assert gain.n == 100
    assert gain.domains["small"].better
    assert not gain.domains["large"].better
    assert not gain.domains["large"].worse
    assert paired_gain(after, before).domains["small"].worse


def test_gain_pairs_by_task_and_not_by_position() -> None:
    scores = [[float(number % 2)] for number in range(40)]
    before = report({"a": scores})
    swapped = replace(before, items=before.items[::-1])
    gain = paired_gain(before, swapped)
    assert gain == paired_gain(before, before)
    assert gain.mean == 0.0


def test_pairing_is_sharper_than_two_reports_side_by_side() -> None:
    rng = np.random.default_rng(0)
    ability = rng.beta(0.3, 0.3, 128)
    before = report({"a": (rng.binomial(4, ability)[:, None] / 4).tolist()})
    after = report({"a": (rng.binomial(4, ability)[:, None] / 4).tolist()})
    low, high = paired_gain(before, after).ci95
    alone = [r.mean.ci95[1] - r.mean.ci95[0] for r in (before, after)]
    assert high - low < 0.75 * math.hypot(*alone)


def test_unchanged_and_wholly_changed_domains_are_not_certain() -> None:
    nothing, all_right = report({"a": [[0.0]] * 20}), report({"a": [[1.0]] * 20})
    low, high = paired_gain(nothing, nothing).ci95
    assert low < 0.0 < high
    low, high = paired_gain(nothing, all_right).ci95
    assert 0.0 < low < high == 1.0


def test_reports_of_different_suites_are_refused() -> None:
    with pytest.raises(ValueError, match="measured different tasks"):
        paired_gain(report({"a": [[0.0]] * 3}), report({"a": [[0.0]] * 4}))


def test_reports_that_lack_items_are_refused() -> None:
    whole = report({"a": [[0.0]] * 3})
    with pytest.raises(ValueError, match="1 stand in one of them alone"):
        paired_gain(whole, replace(whole, items=whole.items[:2]))


def test_paired_intervals_cover_the_true_gain_nineteen_times_in_twenty() -> None:
    rng = np.random.default_rng(11)
    trials, covered, false_worse = 120, 0, 0
    suite = report({"a": [[0.0]] * 64, "b": [[0.0]] * 64})
    lift = np.repeat([0.0, 0.2], 64)
    for _ in range(trials):
        ability = rng.beta(0.5, 1.0, 128) * 0.8
        before, after = (rescored(suite, rng.binomial(4, ability + x) / 4) for x in (0.0, lift))
        gain = paired_gain(before, after)
        covered += gain.ci95[0] <= 0.1 <= gain.ci95[1]
        false_worse += gain.domains["a"].worse
    assert 0.90 <= covered / trials <= 0.995
    assert false_worse / trials <= 0.06
