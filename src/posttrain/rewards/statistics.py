"""Means and spreads in two passes of float64, taken so that equal values differ by exactly 0 (law L7).

It knows nothing of groups, tokens or rewards.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]

STD_OFFSET = 1e-4
"""Added to a standard deviation that is divided by, as in TRL: values closer than this are as good as equal."""


def deviations(values: Values) -> Values:
    """Each value minus the mean of all; exactly 0 where all are equal."""
    if not len(values):
        return values
    # Taken from the first value before the mean is: equal values then differ by exactly 0, whatever they are.
    shifted = values - values[0]
    return np.asarray(shifted - shifted.mean(), np.float64)


def scaled(deviations: Values) -> Values:
    """Deviations divided by their sample standard deviation (n − 1 below, as `torch.std`) plus `STD_OFFSET`."""
    if len(deviations) < 2:
        return deviations
    std = math.sqrt(float(np.square(deviations).sum()) / (len(deviations) - 1))
    return np.asarray(deviations / (std + STD_OFFSET), np.float64)


def check_clip(clip: float) -> None:
    """Raises ValueError where `clip` does not bound an advantage and leave something of it."""
    if not clip > 0.0:
        raise ValueError(f"clip must be above 0, not {clip}")
