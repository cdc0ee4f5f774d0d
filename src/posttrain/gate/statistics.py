"""Uncertainty of scores, and of the difference between two policies on the same tasks. Pure and seeded.

The unit of resampling is the task, never the attempt: attempts at one task are not independent. It decides nothing
beyond one interval at a time: `multiple.py` is for many domains, `betting.py` and `looks.py` for repeated looks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from posttrain.core.seeding import stable_hash
from posttrain.core.types import EvalReport

RESAMPLES = 10_000
Z95 = NormalDist().inv_cdf(0.975)
Interval = tuple[float, float]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class DomainGain:
    """One domain's paired difference, after minus before."""

    delta: float
    ci95: Interval
    n: int
    """Distinct tasks."""

    @property
    def better(self) -> bool:
        """At 95 %."""
        return self.ci95[0] > 0.0

    @property
    def worse(self) -> bool:
        """At 95 %."""
        return self.ci95[1] < 0.0


@dataclass(frozen=True)
class Gain:
    """Paired difference of two reports, after minus before; domains weigh equally."""

    mean: float
    ci95: Interval
    n: int
    """Distinct tasks of all domains."""
    domains: Mapping[str, DomainGain]


def mean_interval(
    values: Sequence[float] | Floats, *, lowest: float, highest: float, seed: int, tail: float = 0.025
) -> Interval:
    """Interval of the mean of `values`, one per task, each in [`lowest`, `highest`]; `tail` is left out on each side.

    Percentile bootstrap over tasks (Efron 1979), 10,000 resamples, but never narrower than what n tasks can exclude.
    Resampling invents no value it has not seen: n equal scores, or a few odd ones among them, would get an interval
    of no or hardly any width. If none of n tasks differs from the rest, up to a share w = z²/(n + z²) of all tasks
    still may (the upper end of Wilson's interval for 0 of n); at worst these all score `lowest`, or all `highest`.
    For a score of 0 or 1 on every task this is exactly Wilson's interval.
    """
    n = len(values)
    mean = math.fsum(values) / n
    low, high = np.quantile(bootstrap_means(values, seed=seed), (tail, 1.0 - tail))
    z2 = NormalDist().inv_cdf(1.0 - tail) ** 2
    unseen = z2 / (n + z2)
    return (
        min(float(low), mean - unseen * (mean - lowest)),
        max(float(high), mean + unseen * (highest - mean)),
    )


def bootstrap_means(values: Sequence[float] | Floats, *, seed: int) -> Floats:
    """Means of 10,000 resamples of the tasks, with replacement; the order of `values` does not matter."""
    distinct, counts = np.unique(np.asarray(values, dtype=np.float64), return_counts=True)
    n = int(counts.sum())
    # Drawing how often each distinct value turns up is drawing n tasks with replacement, at a fraction of the cost.
    means: Floats = np.random.default_rng(seed).multinomial(n, counts / n, size=RESAMPLES) @ distinct / n
    return means


def combined(means: Sequence[float], intervals: Sequence[Interval]) -> tuple[float, Interval]:
    """The mean of independent means, weighing equally, and its interval.

    Their distances to their interval's ends add in quadrature (MOVER; Zou & Donner 2008, Statistics in Medicine 27,
    section 2), which keeps skewed and one-sided intervals what they are. One mean keeps its own interval.
    """
    mean = math.fsum(means) / len(means)
    below = math.hypot(*(m - low for m, (low, _) in zip(means, intervals, strict=True))) / len(means)
    above = math.hypot(*(high - m for m, (_, high) in zip(means, intervals, strict=True))) / len(means)
    return mean, (mean - below, mean + above)


def paired_gain(before: EvalReport, after: EvalReport) -> Gain:
    """How much better `after` is than `before`, task by task: paired bootstrap within each domain.

    Raises ValueError where the reports are not of the same tasks.
    """
    if before.suite_id != after.suite_id:
        raise ValueError(
            f"reports {before.label} (suite {before.suite_id}) and {after.label} (suite {after.suite_id}) measured "
            "different tasks and cannot be compared in pairs"
        )
    earlier, later = item_means(before), item_means(after)
    if earlier.keys() != later.keys():
        raise ValueError(
            f"reports {before.label} and {after.label} do not hold the same items of suite {after.suite_id}: "
            f"{len(earlier.keys() ^ later.keys())} stand in one of them alone"
        )
    deltas: dict[str, list[float]] = {}
    for (domain, task_id), score in later.items():
        deltas.setdefault(domain, []).append(score - earlier[domain, task_id])
    domains = {domain: _domain_gain(domain, values, after.suite_id) for domain, values in deltas.items()}
    mean, ci95 = combined([gain.delta for gain in domains.values()], [gain.ci95 for gain in domains.values()])
    return Gain(mean=mean, ci95=ci95, n=sum(gain.n for gain in domains.values()), domains=domains)


def item_means(report: EvalReport) -> dict[tuple[str, str], float]:
    """Mean score of each item's attempts, by domain and task id, in the report's order."""
    return {(item.domain, item.task_id): math.fsum(item.scores) / len(item.scores) for item in report.items}


def _domain_gain(domain: str, deltas: Sequence[float], suite_id: str) -> DomainGain:
    seed = stable_hash("gain", suite_id, domain)
    interval = mean_interval(deltas, lowest=-1.0, highest=1.0, seed=seed)
    return DomainGain(delta=math.fsum(deltas) / len(deltas), ci95=interval, n=len(deltas))
