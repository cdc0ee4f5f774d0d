"""From what `posttrain bench sandbox` measured to what it prints. It measures nothing."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Measured:
    """Times in seconds."""

    rates: dict[str, list[float]] = field(default_factory=dict)
    """Executions a second by variant, one for each round; per core but for those of two cores."""
    added_latency_s: list[float] = field(default_factory=list)
    reset_s: dict[int, list[float]] = field(default_factory=dict)
    """Of a session to a snapshot, by the number of files in its work tree."""
    snapshot_s: dict[int, list[float]] = field(default_factory=dict)
    """Likewise."""
    box_s: dict[int, list[float]] = field(default_factory=dict)
    """To empty the box after an execution, by the number of files that it left."""
    overshoot_s: list[float] = field(default_factory=list)
    overshoot_bombs_s: list[float] = field(default_factory=list)


def figures(measured: Measured) -> dict[str, Any]:
    """Ratios, times in ms and rates per second; None for `scaling_2_cores` where there is one core alone."""
    rates = measured.rates
    scaling = None
    if "trivial_2_cores" in rates:
        ours, bare = (ratios(rates[f"{name}_2_cores"], rates[name]) for name in ("trivial", "bare"))
        scaling = _rounded(statistics.median(ratios(ours, bare)))
    return {
        "trivial_vs_bare": _ratio(rates, "trivial", "bare"),
        "trivial_vs_bare_as_installed": _ratio(rates, "trivial", "bare_as_installed"),
        "asserts_vs_bare": _ratio(rates, "asserts", "bare"),
        "numpy_vs_cold": _ratio(rates, "numpy", "numpy_cold"),
        "trivial_vs_rlimits": _ratio(rates, "trivial", "rlimits"),
        "scaling_2_cores": scaling,
        "added_latency_ms": _ms(measured.added_latency_s, 50, 99),
        "reset_ms": _by_files(measured.reset_s),
        "snapshot_ms": _by_files(measured.snapshot_s),
        "box_ms": _by_files(measured.box_s),
        "kill_overshoot_ms": _ms(measured.overshoot_s, 99),
        "kill_overshoot_bombs_ms": _ms(measured.overshoot_bombs_s, 99),
        "rates_per_s": {name: _rounded(statistics.median(values)) for name, values in rates.items()},
    }


def ratios(values: Sequence[float], others: Sequence[float]) -> list[float]:
    """Round by round: what slows a whole round down cancels."""
    return [value / other for value, other in zip(values, others, strict=True)]


def percentile(values: Sequence[float], per_cent: float) -> float:
    """The smallest value that so many are not above: one that was measured, and for few values the worst of them."""
    return sorted(values)[max(1, math.ceil(len(values) * per_cent / 100)) - 1]


def _ratio(rates: dict[str, list[float]], name: str, other: str) -> float:
    return _rounded(statistics.median(ratios(rates[name], rates[other])))


def _by_files(times_s: dict[int, list[float]]) -> dict[str, Any]:
    """Over all, and for each number of files."""
    each = {f"{num_files}_files": _ms(times, 50, 99) for num_files, times in times_s.items()}
    return {**_ms([s for times in times_s.values() for s in times], 50, 99), **each}


def _ms(times_s: Sequence[float], *per_cent: int) -> dict[str, float]:
    return {f"p{number}": _rounded(1000 * percentile(times_s, number)) for number in per_cent}


def _rounded(value: float) -> float:
    return round(value, 3)
