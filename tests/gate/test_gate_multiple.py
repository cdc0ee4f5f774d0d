"""Holm and Benjamini-Hochberg: against scipy, their definitions, and what they promise."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import false_discovery_control

from posttrain.gate.multiple import benjamini_hochberg, holm

p_values = st.dictionaries(st.text("abcdef", min_size=1, max_size=4), st.floats(0.0, 1.0), max_size=30)


@settings(deadline=None)
@given(p_values)
def test_benjamini_hochberg_is_scipys(p: dict[str, float]) -> None:
    adjusted = false_discovery_control(list(p.values())) if p else []
    clear = {name for name, value in zip(p, adjusted, strict=True) if value < 0.1 * (1 - 1e-9)}
    near = {name for name, value in zip(p, adjusted, strict=True) if value <= 0.1 * (1 + 1e-9)}
    assert clear <= benjamini_hochberg(p, 0.1) <= near


@settings(deadline=None)
@given(p_values)
def test_holm_rejects_what_its_adjusted_p_values_say(p: dict[str, float]) -> None:
    adjusted, highest = {}, 0.0
    for place, name in enumerate(sorted(p, key=lambda name: (p[name], name))):
        highest = max(highest, p[name] * (len(p) - place))
        adjusted[name] = highest
    rejected = holm(p, 0.05)
    assert {n for n, v in adjusted.items() if v < 0.05 * (1 - 1e-9)} <= rejected
    assert rejected <= {n for n, v in adjusted.items() if v <= 0.05 * (1 + 1e-9)}


@settings(deadline=None)
@given(p_values)
def test_what_blocks_also_warns(p: dict[str, float]) -> None:
    assert holm(p, 0.05) <= benjamini_hochberg(p, 0.05)


def test_holm_seldom_errs_and_takes_further_steps() -> None:
    rng = np.random.default_rng(0)
    false = sum(bool(holm({str(i): p for i, p in enumerate(rng.random(200))}, 0.05)) for _ in range(2000))
    assert false / 2000 <= 0.065
    assert holm({"a": 0.01, "b": 0.02, "c": 0.5}, 0.05) == {"a", "b"}, "0.02 fails Bonferroni's step, not Holm's second"
