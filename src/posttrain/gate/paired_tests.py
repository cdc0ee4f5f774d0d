"""How surprising a decline would be if there were none: one-sided p-values of paired differences, at a fixed n. Pure.

The pairs are of one task under the same sampling seeds. Where each task has one attempt that is right or wrong, the
test is McNemar's, exact; otherwise the tasks are resampled. Neither may be looked at twice while tasks are added:
for that there is `betting.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from posttrain.gate.statistics import RESAMPLES, Floats, bootstrap_means


def mcnemar_p(lost: int, won: int) -> float:
    """Of tasks whose answer changed: that `lost` or more of them were lost, if each were as likely won.

    Exact, from the binomial distribution (McNemar 1947, Psychometrika 12); 1 where nothing changed.
    """
    from scipy.stats import binom

    return float(binom.sf(lost - 1, lost + won, 0.5))


def bootstrap_p(differences: Sequence[float] | Floats, *, seed: int) -> float:
    """Share of 10,000 resamples of the tasks whose mean, moved to a true difference of 0, falls as low as the seen one.

    The cluster bootstrap (Davison & Hinkley 1997, "Bootstrap Methods and their Application", chapter 4): a task with
    all its attempts is drawn or left out as a whole. At least 1/10,001, and at least what as many coins would give: few
    tasks that all fell alike have no spread to resample.
    """
    values = np.asarray(differences, dtype=np.float64)
    seen = values.mean()
    as_low = int((bootstrap_means(values - seen, seed=seed) <= seen + 1e-12).sum())
    return max((as_low + 1) / (RESAMPLES + 1), 0.5 ** int(np.count_nonzero(values)))


def decline_p(differences: Sequence[float] | Floats, *, samples: int, seed: int) -> float:
    """The test that fits: McNemar's for one attempt a task that is right or wrong, else the cluster bootstrap."""
    values = np.asarray(differences, dtype=np.float64)
    if samples == 1 and np.isin(values, (-1.0, 0.0, 1.0)).all():
        return mcnemar_p(int((values < 0).sum()), int((values > 0).sum()))
    return bootstrap_p(values, seed=seed)
