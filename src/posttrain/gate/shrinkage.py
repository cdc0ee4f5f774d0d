"""Families of domains: a small domain's estimate drawn towards its family's mean, as far as the family agrees. Pure.

Each domain's true change is taken as a draw from its family's normal distribution, whose mean and spread are
estimated from the family itself (empirical Bayes; Morris 1983, "Parametric empirical Bayes inference", JASA 78). The
average error over a family falls. A domain unlike its family would be wronged, so no estimate moves further than one
of its own standard errors (limited translation; Efron & Morris 1972, JASA 67).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from posttrain.gate.statistics import Floats

SMALLEST_FAMILY = 4
"""Fewer domains say too little of their spread (Morris needs k > 3)."""
LIMIT = 1.0
"""How many of its own standard errors an estimate may move."""


@dataclass(frozen=True)
class Shrunk:
    """A family's estimates, in the order in which they were given."""

    means: tuple[float, ...]
    errors: tuple[float, ...]
    """Standard errors."""
    family_mean: float
    family_spread: float
    """Standard deviation of the true changes between the family's domains."""


def shrink(means: Sequence[float], errors: Sequence[float]) -> Shrunk:
    """Unbiased estimates and their standard errors → shrunken ones. A family below `SMALLEST_FAMILY` stays as it is."""
    x, s2 = np.asarray(means, dtype=np.float64), np.asarray(errors, dtype=np.float64) ** 2
    assert (s2 > 0.0).all(), "an estimate without an error"
    if len(x) < SMALLEST_FAMILY:
        return Shrunk(tuple(means), tuple(errors), float(x.mean()), float(x.std()))
    spread2 = _between_variance(x, s2)
    weights = 1.0 / (s2 + spread2)
    mean = float((weights * x).sum() / weights.sum())
    towards = s2 / (s2 + spread2) * (len(x) - 3) / (len(x) - 1)  # less than all: the spread is estimated
    moved = np.clip(towards * (mean - x), -LIMIT * np.sqrt(s2), LIMIT * np.sqrt(s2))
    error2 = s2 * (1.0 - towards) + towards**2 / weights.sum() + 2.0 / (len(x) - 3) * towards**2 * (x - mean) ** 2
    own = np.minimum(np.sqrt(error2), np.sqrt(s2))
    return Shrunk(tuple((x + moved).tolist()), tuple(own.tolist()), mean, float(np.sqrt(spread2)))


def _between_variance(x: Floats, s2: Floats) -> float:
    """Where the weighted squared distances to the mean are as large as they should be (Paule & Mandel 1982, Journal of
    Research of the NBS 87); 0 where the estimates differ by no more than their errors."""
    from scipy.optimize import brentq

    def excess(spread2: float) -> float:
        weights = 1.0 / (s2 + spread2)
        mean = (weights * x).sum() / weights.sum()
        return float((weights * (x - mean) ** 2).sum() - (len(x) - 1))

    if excess(0.0) <= 0.0:
        return 0.0
    return float(brentq(excess, 0.0, float(((x - x.mean()) ** 2).sum())))
