"""What a suite can detect: the power of the betting test, the smallest loss it finds, the tasks it needs. Pure.

The test rejects when the wealth reaches a threshold (`betting.py`). Wealth depends on how often each difference
occurred, nearly through their sum alone: given the sum, the counts are taken to be the likeliest ones, an exponential
tilt of their distribution, and the chance of the sum is computed exactly, as an n-fold convolution. From a hundred
tasks on that agrees with simulation to within 3 points (`benchmarks/gates.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from posttrain.gate.betting import log_wealth_of_counts
from posttrain.gate.statistics import Floats

POWER = 0.8
"""The chance of being found that "detectable" means."""
MOST_TASKS = 1 << 17
STEEPEST = 1e3
"""Slope of a tilt that leaves nothing but the least value."""
COARSEST_STEPS = 100
"""Steps between 0 and 1 for differences that lie on no grid of their own."""


@dataclass(frozen=True)
class Differences:
    """A distribution of a task's paired difference, on the grid -1, -1 + 1/steps … 1."""

    steps: int
    """Between 0 and 1: the number of attempts a task, where each is right or wrong."""
    chances: Floats  # [2 steps + 1]

    @property
    def values(self) -> Floats:
        return np.arange(-self.steps, self.steps + 1, dtype=np.float64) / self.steps

    @property
    def mean(self) -> float:
        return float(self.values @ self.chances)

    def tilted(self, slope: float) -> Differences:
        """Each chance times exp(`slope` × value), normalised: of all distributions with its mean, the closest one."""
        with np.errstate(divide="ignore"):
            logs = np.log(self.chances) + slope * self.values
        raw = np.exp(logs - logs.max())
        return Differences(self.steps, raw / raw.sum())

    def with_mean(self, mean: float) -> Differences:
        """The tilt that has this mean; the nearest one that there is where the values do not reach it."""
        low, high = -STEEPEST, STEEPEST
        for _ in range(60):
            middle = (low + high) / 2.0
            low, high = (middle, high) if self.tilted(middle).mean < mean else (low, middle)
        return self.tilted((low + high) / 2.0)


def observed(differences: Sequence[float] | Floats, samples: int) -> Differences:
    """What a domain's pairs say of their spread, without their mean's sign: planning must not know the result.

    One task that was lost and one that was won are added, so that pairs that all agree do not promise certainty.
    """
    values = np.asarray(differences, dtype=np.float64)
    on_grid = np.abs(values * samples - np.rint(values * samples)).max(initial=0.0) < 1e-9
    steps = samples if on_grid else COARSEST_STEPS
    places = np.rint(np.concatenate([values, -values, [-1.0, 1.0, -1.0, 1.0]]) * steps).astype(int) + steps
    counts = np.bincount(places, minlength=2 * steps + 1).astype(np.float64)
    return Differences(steps, counts / counts.sum())


def power(differences: Differences, n: int, log_threshold: float) -> float:
    """Chance that n tasks whose differences are distributed so bring the wealth to the threshold."""
    limit = _critical_sum(differences, n, log_threshold)
    return 0.0 if limit is None else _chance_of_sum(differences, n, limit)


def detectable(differences: Differences, n: int, log_threshold: float, *, chance: float = POWER) -> float | None:
    """The smallest loss, in score, that n tasks show with this chance; None where they can show no loss at all.

    `differences` state the spread; the loss is put into them by tilting.
    """
    limit = _critical_sum(differences, n, log_threshold)
    if limit is None:
        return None
    found, missed = -0.05, 0.0
    while _chance_of_sum(differences.tilted(found), n, limit) < chance:
        found, missed = 2.0 * found, found
        if found < -STEEPEST:
            return None
    for _ in range(8):
        middle = (found + missed) / 2.0
        if _chance_of_sum(differences.tilted(middle), n, limit) < chance:
            missed = middle
        else:
            found = middle
    return -differences.tilted(found).mean


def tasks_needed(differences: Differences, loss: float, log_threshold: float, *, chance: float = POWER) -> int | None:
    """How many tasks show `loss` with this chance; None where it takes more than 131,072."""
    lost = differences.with_mean(-loss)
    enough = 1
    while power(lost, enough, log_threshold) < chance:
        enough *= 2
        if enough > MOST_TASKS:
            return None
    too_few = enough // 2
    while enough - too_few > max(1, enough // 100):
        middle = (enough + too_few) // 2
        if power(lost, middle, log_threshold) < chance:
            too_few = middle
        else:
            enough = middle
    return enough


def log_threshold(alpha: float, *, weight: float, hypotheses: int) -> float:
    """Logarithm of the wealth that blocks, in a look of this weight: Holm's first and hardest step."""
    return math.log(hypotheses / (alpha * weight))


def _critical_sum(differences: Differences, n: int, threshold: float) -> float | None:
    """The largest sum of n differences at which the wealth reaches the threshold; None where not even -n does."""

    def reached(slope: float) -> bool:
        counts = n * differences.tilted(slope).chances
        return bool(log_wealth_of_counts(differences.values, counts) >= threshold)

    low, high = -STEEPEST, STEEPEST
    if not reached(low) or reached(high):
        return None
    for _ in range(40):
        middle = (low + high) / 2.0
        low, high = (middle, high) if reached(middle) else (low, middle)
    return n * differences.tilted(low).mean


def _chance_of_sum(differences: Differences, n: int, limit: float) -> float:
    """That the sum of n differences is at most `limit`: their distribution's n-fold convolution, by its transform."""
    steps = differences.steps
    size = 1 << (2 * n * steps).bit_length()
    chances = np.fft.irfft(np.fft.rfft(differences.chances, size) ** n, size)
    last = math.floor(limit * steps + 1e-9) + n * steps
    return float(np.clip(chances[: last + 1].sum(), 0.0, 1.0)) if last >= 0 else 0.0
