"""The before/after picture: for each domain one row a label, the score as a dot on its 95 % interval. Inline SVG.

The best constant answer is a tick on each row: a score that is not right of it shows no skill. It computes no score.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from markupsafe import Markup

from posttrain.core.types import DomainScore

WIDTH = 760
LEFT, RIGHT, TOP = 190, 140, 8
ROW, GAP, BOTTOM = 19, 12, 30


def forest_plot(domains: Mapping[str, Mapping[str, DomainScore]]) -> Markup:
    """`domains[name][label]`, drawn in the order of both mappings."""
    y: float = TOP
    parts = []
    for domain, by_label in domains.items():
        middle = y + ROW * len(by_label) / 2 + 4
        parts.append(f'<text class="name" x="0" y="{middle:.1f}">{Markup.escape(domain)}</text>')
        for number, (label, score) in enumerate(by_label.items()):
            last = number == len(by_label) - 1
            parts.append(_row(label, score, y + ROW / 2, last=last))
            y += ROW
        y += GAP
    bottom = y - GAP / 2
    scale = "".join(_tick(tenth / 10, bottom) for tenth in range(0, 11, 2))
    height = bottom + BOTTOM
    head = f'<svg class="forest" viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="pass@1 with intervals">'
    return Markup(f"{head}{scale}{''.join(parts)}</svg>")


def _row(label: str, score: DomainScore, y: float, *, last: bool) -> str:
    kind = "after" if last else "before"
    low, high = (value if math.isfinite(value) else score.pass_at_1 for value in score.ci95)
    said = f"{100 * score.pass_at_1:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"
    constant = ""
    if math.isfinite(score.best_constant):
        x = _x(score.best_constant)
        constant = f'<line class="constant" x1="{x:.1f}" x2="{x:.1f}" y1="{y - 6:.1f}" y2="{y + 6:.1f}"/>'
    return (
        f'<g class="{kind}"><text class="label" x="{LEFT - 10}" y="{y + 4:.1f}" text-anchor="end">'
        f'{Markup.escape(label)}</text>{constant}<line class="interval" x1="{_x(low):.1f}" x2="{_x(high):.1f}" '
        f'y1="{y:.1f}" y2="{y:.1f}"/><circle cx="{_x(score.pass_at_1):.1f}" cy="{y:.1f}" r="{5 if last else 4}">'
        f"<title>{Markup.escape(label)}: {said}, n = {score.n}</title></circle>"
        f'<text class="value" x="{WIDTH}" y="{y + 4:.1f}" text-anchor="end">{said}</text></g>'
    )


def _tick(value: float, bottom: float) -> str:
    x = _x(value)
    return (
        f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom:.1f}"/>'
        f'<text class="tick" x="{x:.1f}" y="{bottom + 16:.1f}" text-anchor="middle">{100 * value:.0f} %</text>'
    )


def _x(fraction: float) -> float:
    return LEFT + fraction * (WIDTH - LEFT - RIGHT - 20)
