"""Evidence by betting: how much a gambler who bets on a decline has won, starting from 1. Pure.

Each task's paired difference d lies in [-1, 1]. Against the hypothesis "the mean of d is at least -margin" a gambler
stakes the share λ of his wealth on each task, which multiplies it by 1 - λ(d + margin). If the hypothesis holds, his
wealth is a supermartingale: the chance that it *ever* reaches 1/α is at most α (Ville 1939), whatever the distribution
of d and however often one looks while tasks are added. λ is not known beforehand, so the stake is divided over a grid
and the wealths are added up, which needs no tuning and does not depend on the order of the tasks.

Waudby-Smith & Ramdas 2024, "Estimating means of bounded random variables by betting", JRSS B 86; Orabona & Jun 2024,
"Tight concentrations and confidence sequences from the regret of universal portfolio", IEEE Trans. Inf. Theory 70, for
mixtures of constant bets; Ramdas et al. 2023, "Game-theoretic statistics and safe anytime-valid inference",
Statistical Science 38. Tasks must be drawn from their domain independently of the policies; nothing else is assumed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from posttrain.gate.statistics import Floats

BETS = np.geomspace(0.02, 0.95, 12)
"""Shares of the largest stake that cannot ruin the gambler; neighbours differ by less than half, so that the best
constant bet loses little to its nearest one."""


def log_wealth(differences: Sequence[float] | Floats, *, margin: float = 0.0) -> float:
    """Logarithm of the wealth after all `differences`, against "the mean is at least -`margin`"; 0 for none."""
    values, counts = np.unique(np.asarray(differences, dtype=np.float64), return_counts=True)
    return float(log_wealth_of_counts(values, counts.astype(np.float64), margin=margin))


def log_wealth_of_counts(values: Floats, counts: Floats, *, margin: float = 0.0) -> Floats:
    """The same for many samples at once: `counts` [..., V] of `values` [V] → [...]."""
    stakes = BETS / (1.0 + margin)
    factors = np.log1p(-np.outer(values + margin, stakes))  # [V, J]
    wealths = counts @ factors  # [..., J]
    best = wealths.max(axis=-1, keepdims=True)
    total: Floats = best[..., 0] + np.log(np.exp(wealths - best).mean(axis=-1))
    return total


def anytime_p(log_evidence: float, weight: float = 1.0) -> float:
    """The p-value of a wealth, valid whenever one stops: 1 / (`weight` × wealth), at most 1. `weight` is the look's
    share of the error budget (`looks.py`)."""
    return math.exp(min(0.0, -log_evidence - math.log(weight)))
