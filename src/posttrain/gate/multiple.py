"""Many hypotheses at once: which may be rejected so that false alarms stay rare. Pure; each takes one p-value by name.

Holm's procedure bounds the chance of even one false rejection, whatever the dependence: it blocks. Benjamini and
Hochberg's bounds the expected share of false ones among the rejected: it warns.
"""

from __future__ import annotations

from collections.abc import Mapping


def holm(p_values: Mapping[str, float], alpha: float) -> frozenset[str]:
    """Rejected names; the chance that any of them is true is at most `alpha` (Holm 1979, Scandinavian Journal of
    Statistics 6). Valid under any dependence."""
    rejected: set[str] = set()
    for place, name in enumerate(_sorted(p_values)):
        if p_values[name] > alpha / (len(p_values) - place):
            break
        rejected.add(name)
    return frozenset(rejected)


def benjamini_hochberg(p_values: Mapping[str, float], rate: float) -> frozenset[str]:
    """Rejected names; the expected share of true ones among them is at most `rate` (Benjamini & Hochberg 1995, JRSS B
    57), for independent p-values and for positively dependent ones (Benjamini & Yekutieli 2001, Annals of Statistics
    29)."""
    order = _sorted(p_values)
    passed = [place for place, name in enumerate(order, 1) if p_values[name] <= rate * place / len(order)]
    return frozenset(order[: max(passed, default=0)])


def _sorted(p_values: Mapping[str, float]) -> list[str]:
    return sorted(p_values, key=lambda name: (p_values[name], name))
