"""Whether a group has nothing left to learn of a part: all attempts have nearly all of it, and hardly differ.

It lowers no weight: a rule over the share of such groups does (`run/health.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from posttrain.rewards.statistics import deviations

MEAN, SPREAD = 0.95, 0.1
"""A saturated part's mean is at least, and its standard deviation within the group at most, this: of eight attempts
all, or all but a slight failure, have it."""


def saturated(values: Sequence[float]) -> bool:
    """Of one group's scored attempts, two or more; a group of one says nothing."""
    if len(values) < 2:
        return False
    array = np.asarray(values, np.float64)
    spread = math.sqrt(float(np.square(deviations(array)).mean()))
    return float(array.mean()) >= MEAN and spread <= SPREAD
