"""One error budget for all the looks of a run: how much of it the look with number `look` may spend.

The looks of a run share their items and, nearly, their policies, so nothing about their dependence is assumed: the
weights sum to at most 1, and a look that rejects at `alpha * weight` keeps the whole run below `alpha`, however many
looks there are and whenever one stops (a Bonferroni spending sequence; Lan & DeMets 1983, Biometrika 70, have it for
a known number). Within a look more items may be drawn and looked at: that is `betting.py`'s affair.
"""

from __future__ import annotations

RESERVE = 0.1
"""Of the budget, for looks beyond the planned number."""


def look_weight(look: int, planned: int) -> float:
    """Share of the error budget of look number `look`, counted from 1.

    The `planned` looks share nine tenths equally; each further one gets less of the rest: 1/2, 1/6, 1/12 … of it.
    """
    assert look >= 1, look
    assert planned >= 1, planned
    if look <= planned:
        return (1.0 - RESERVE) / planned
    beyond = look - planned
    return RESERVE / (beyond * (beyond + 1))
