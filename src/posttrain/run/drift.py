"""What of a rising reward nothing else confirms: the reward's rise minus that of what should rise with it.

A pure function of a stage's records. Rises are between the stage's first steps and its last ones, so that a verifier
that was always milder than another is no alarm, and one that a policy learns to please is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

WINDOW = 10
"""Steps at either end that a rise is measured between; half of them all while there are fewer."""
MIN_STEPS = 6
CONFIRMING = ("held_out", "hidden_tests")
"""Metrics of a domain that should rise with its reward: an independent verifier's rate, the hidden tests'."""


def drift_values(history: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """`drift/WHAT/DOMAIN` after the last of `history`, the stage's records in order: in units of reward, at least 0."""
    values = {}
    for what in CONFIRMING:
        names = dict.fromkeys(name for record in history for name in record if name.startswith(f"{what}/"))
        for domain in (name.removeprefix(f"{what}/") for name in names):
            pairs = [
                (record[f"reward/{domain}"], record[f"{what}/{domain}"])
                for record in history
                if f"reward/{domain}" in record and f"{what}/{domain}" in record
            ]
            pairs = [pair for pair in pairs if all(map(math.isfinite, pair))]
            if len(pairs) >= MIN_STEPS:
                reward, confirming = rise([pair[0] for pair in pairs]), rise([pair[1] for pair in pairs])
                values[f"drift/{what}/{domain}"] = max(0.0, reward - max(0.0, confirming))
    return values


def rise(values: Sequence[float]) -> float:
    """Mean of the last steps minus mean of the first."""
    window = min(WINDOW, len(values) // 2)
    return math.fsum(values[-window:]) / window - math.fsum(values[:window]) / window
