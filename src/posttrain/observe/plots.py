"""Line charts as inline SVG: themed by the page's CSS variables, readable without scripts, safe to embed.

A noisy series is drawn twice: faint as measured, and firm as its moving mean. Every point states its numbers when the
pointer rests on it. It knows nothing of runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

WIDTH, HEIGHT = 460, 210
LEFT, RIGHT, TOP, BOTTOM = 46, 10, 10, 26
SMOOTH_SHARE = 20
"""The moving mean spans one in this many points; with fewer points nothing is smoothed."""


@dataclass(frozen=True)
class Series:
    """One line; points that are not finite are left out."""

    name: str
    points: tuple[tuple[float, float], ...]
    color: int = 0
    """Number of a colour of the page, the same for the same thing in every chart."""


@dataclass(frozen=True)
class Chart:
    """A title, its lines drawn, and what the legend says of each."""

    title: str
    svg: Markup
    legend: tuple[tuple[str, int, str], ...]
    """Name, colour, last value (of the moving mean where there is one)."""
    note: str = ""


def line_chart(title: str, series: Sequence[Series], *, share: bool = False, from_zero: bool = False) -> Chart | None:
    """None where there is nothing to draw. `share`: the values are fractions, drawn from 0 to 1 as per cent;
    `from_zero`: no value is negative, and differences are to look as large as they are."""
    finite = [Series(s.name, tuple(p for p in s.points if math.isfinite(p[1])), s.color) for s in series]
    drawn = [line for line in finite if line.points]
    if not drawn:
        return None
    values = [y for line in drawn for _, y in line.points]
    steps = [x for line in drawn for x, _ in line.points]
    low, high = (0.0, 1.0) if share else (0.0 if from_zero else min(values), max(values))
    axis = _Axis(min(steps), max(*steps, min(steps) + 1), *_padded(low, high, share=share))
    parts = [_grid(axis, share=share)]
    legend = []
    smoothed = False
    for line in drawn:
        window = len(line.points) // SMOOTH_SHARE
        mean = moving_mean(line.points, window)
        smoothed = smoothed or window > 1
        if window > 1:
            parts.append(_path(axis, line.points, line.color, "raw"))
        parts.append(_path(axis, mean, line.color, "line"))
        parts.append(_dots(axis, line, share=share))
        legend.append((line.name, line.color, _number(mean[-1][1], share=share)))
    svg = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{Markup.escape(title)}">{"".join(parts)}</svg>'
    return Chart(title, Markup(svg), tuple(legend), "faint: each step; firm: moving mean" if smoothed else "")


def moving_mean(points: Sequence[tuple[float, float]], window: int) -> list[tuple[float, float]]:
    """The mean of up to `window` points to each side's half, shorter at the ends; the same points for a window of 1."""
    half = window // 2
    means = []
    for number, (x, _) in enumerate(points):
        near = [y for _, y in points[max(0, number - half) : number + half + 1]]
        means.append((x, sum(near) / len(near)))
    return means


@dataclass(frozen=True)
class _Axis:
    left: float
    right: float
    bottom: float
    top: float

    def x(self, value: float) -> float:
        return LEFT + (value - self.left) / (self.right - self.left) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return TOP + (self.top - value) / (self.top - self.bottom) * (HEIGHT - TOP - BOTTOM)


def _padded(low: float, high: float, *, share: bool) -> tuple[float, float]:
    if share:
        return low, high
    room = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    return (low - room if low < 0 or low - room > 0 else 0.0), high + room


def ticks(low: float, high: float, count: int) -> list[float]:
    """Round numbers inside `[low, high]`, about `count` of them."""
    raw = (high - low) / count
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next(m * magnitude for m in (1, 2, 2.5, 5, 10) if m * magnitude >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def _grid(axis: _Axis, *, share: bool) -> str:
    parts = []
    for value in ticks(axis.bottom, axis.top, 4):
        y = axis.y(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        text = _number(value, share=share)
        parts.append(f'<text class="tick" x="{LEFT - 6}" y="{y + 3.5:.1f}" text-anchor="end">{text}</text>')
    for value in ticks(axis.left, axis.right, 6):
        if value == int(value):
            text = (
                f'<text class="tick" x="{axis.x(value):.1f}" y="{HEIGHT - 8}" text-anchor="middle">{value:.0f}</text>'
            )
            parts.append(text)
    return "".join(parts)


def _path(axis: _Axis, points: Sequence[tuple[float, float]], color: int, kind: str) -> str:
    steps = " ".join(f"{axis.x(x):.1f},{axis.y(y):.1f}" for x, y in points)
    return f'<polyline class="{kind} c{color}" points="{steps}"/>'


def _dots(axis: _Axis, line: Series, *, share: bool) -> str:
    """Where the pointer can rest; seen only where a line has too few points to be one."""
    kind = "dot" if len(line.points) < 3 else "dot hidden"
    return "".join(
        f'<circle class="{kind} c{line.color}" cx="{axis.x(x):.1f}" cy="{axis.y(y):.1f}" r="4">'
        f"<title>{Markup.escape(line.name)}, step {x:.0f}: {_number(y, share=share)}</title></circle>"
        for x, y in line.points
    )


def _number(value: float, *, share: bool) -> str:
    if share:
        return f"{100 * value:.0f} %"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
