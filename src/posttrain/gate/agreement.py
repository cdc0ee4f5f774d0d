"""How well a verifier agrees with people, from a few labels: shares with their intervals, and Cohen's kappa. Pure.

Labels come from strata that were not sampled alike, so each stratum counts by its size and not by its labels.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from posttrain.gate.statistics import Z95, Interval


@dataclass(frozen=True)
class Stratum:
    """One stratum's labels."""

    size: int
    """Attempts in it, labelled or not."""
    num_labels: int
    share: float
    """Of its labels that are what is counted; of no labels it means nothing."""


@dataclass(frozen=True)
class Estimate:
    """A share of a population, from labels."""

    value: float
    ci95: Interval
    num_labels: int
    covered: float
    """Share of the population whose strata have labels: of the rest nothing is known."""


def wilson(share: float, n: float) -> Interval:
    """Wilson's 95 % interval for `share` of `n` draws (Wilson 1927, JASA 22); `n` may be an effective number."""
    centre = (share + Z95**2 / (2 * n)) / (1 + Z95**2 / n)
    half = Z95 / (1 + Z95**2 / n) * math.sqrt(share * (1 - share) / n + Z95**2 / (4 * n**2))
    return max(0.0, centre - half), min(1.0, centre + half)


def stratified_share(strata: Sequence[Stratum]) -> Estimate | None:
    """The share in the population that the strata make up; None where nothing is labelled.

    Σ W_h·p_h with W_h by size (Cochran 1977, section 5.3), over the strata that have labels. Its interval is Wilson's
    for the effective number of labels 1 / Σ W_h²/n_h (Kish 1965): unlike the estimate's own variance it does not
    collapse where every label of every stratum says the same.
    """
    known = [stratum for stratum in strata if stratum.num_labels and stratum.size]
    total = sum(stratum.size for stratum in known)
    if not total:
        return None
    value = math.fsum(stratum.size / total * stratum.share for stratum in known)
    effective = 1.0 / math.fsum((stratum.size / total) ** 2 / stratum.num_labels for stratum in known)
    value = min(1.0, max(0.0, value))
    covered = total / sum(stratum.size for stratum in strata)
    return Estimate(value, wilson(value, effective), sum(stratum.num_labels for stratum in known), covered)


def recall(precision: Estimate | None, num_accepted: int, missed: Estimate | None, num_refused: int) -> Estimate | None:
    """Share of what is right that was accepted: `missed` is the share of right ones among the refused.

    The interval goes from the worst ends of both to their best: at least 95 %. None where either side is unknown and
    not empty, or where nothing is right.
    """
    if (precision is None and num_accepted) or (missed is None and num_refused):
        return None
    accepted = _scaled(precision, num_accepted)
    refused = _scaled(missed, num_refused)
    if accepted[0] + refused[0] == 0.0:
        return None
    labels = sum(side.num_labels for side in (precision, missed) if side is not None)
    covered = min(side.covered for side in (precision, missed) if side is not None)
    low = _ratio(accepted[1], refused[2])
    high = _ratio(accepted[2], refused[1])
    return Estimate(_ratio(accepted[0], refused[0]), (low, high), labels, covered)


def cohens_kappa(pairs: Sequence[tuple[Hashable, Hashable]]) -> float | None:
    """Agreement of two raters beyond chance (Cohen 1960, Educational and Psychological Measurement 20).

    (p_o − p_e) / (1 − p_e). None without pairs, or where both gave one label to everything: chance explains it all.
    """
    if not pairs:
        return None
    n = len(pairs)
    observed = sum(one == other for one, other in pairs) / n
    first, second = Counter(one for one, _ in pairs), Counter(other for _, other in pairs)
    expected = math.fsum(first[label] * second[label] for label in first) / n**2
    return None if expected >= 1.0 else (observed - expected) / (1.0 - expected)


def _scaled(estimate: Estimate | None, number: int) -> tuple[float, float, float]:
    """`(value, low, high)` as numbers of attempts."""
    if estimate is None:
        return 0.0, 0.0, 0.0
    return number * estimate.value, number * estimate.ci95[0], number * estimate.ci95[1]


def _ratio(part: float, rest: float) -> float:
    return part / (part + rest) if part + rest > 0.0 else 0.0
