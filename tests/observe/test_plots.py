from __future__ import annotations

import math
from xml.etree import ElementTree

from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.core.types import DomainScore
from posttrain.observe.forest import forest_plot
from posttrain.observe.plots import HEIGHT, WIDTH, Series, line_chart, moving_mean, ticks

NUMBERS = st.floats(allow_nan=True, allow_infinity=True, min_value=None, max_value=None, width=32)


@settings(max_examples=60, deadline=None)
@given(st.lists(NUMBERS, max_size=30))
def test_any_numbers_give_a_well_formed_picture_within_its_frame(values: list[float]) -> None:
    chart = line_chart("loss", [Series("<loss>", tuple((float(i), y) for i, y in enumerate(values)))])
    if chart is None:
        assert not [y for y in values if math.isfinite(y)]
        return
    root = ElementTree.fromstring(str(chart.svg))
    for circle in root.iter("circle"):
        assert -1 <= float(circle.attrib["cx"]) <= WIDTH + 1
        assert -1 <= float(circle.attrib["cy"]) <= HEIGHT + 1


def test_nothing_to_draw_is_no_chart() -> None:
    assert line_chart("loss", []) is None
    assert line_chart("loss", [Series("loss", ((1.0, float("nan")),))]) is None


def test_shares_are_drawn_from_zero_to_a_hundred_per_cent() -> None:
    chart = line_chart("pass rate", [Series("words", ((1.0, 0.5), (2.0, 0.6)))], share=True)
    assert chart is not None
    assert "100 %" in chart.svg
    assert chart.legend == (("words", 0, "60 %"),)


def test_a_chart_from_zero_shows_a_small_difference_small() -> None:
    series = [Series("rate", ((1.0, 1000.0), (2.0, 1100.0)))]
    chart, zoomed = line_chart("rate", series, from_zero=True), line_chart("rate", series)
    assert chart is not None
    assert zoomed is not None
    assert ">0</text>" in chart.svg
    assert ">0</text>" not in zoomed.svg


def test_only_many_points_are_smoothed() -> None:
    few = line_chart("loss", [Series("loss", tuple((float(i), float(i % 2)) for i in range(20)))])
    many = line_chart("loss", [Series("loss", tuple((float(i), float(i % 2)) for i in range(60)))])
    assert few is not None
    assert many is not None
    assert "raw" not in few.svg
    assert "raw" in many.svg


def test_a_moving_mean_keeps_a_constant_and_its_points() -> None:
    points = [(float(i), 2.0) for i in range(10)]
    assert moving_mean(points, 5) == points
    assert moving_mean([(0.0, 1.0), (1.0, 3.0)], 1) == [(0.0, 1.0), (1.0, 3.0)]


def test_ticks_are_round_numbers_inside() -> None:
    assert ticks(0, 1, 4) == [0, 0.25, 0.5, 0.75, 1.0]
    assert ticks(3, 97, 5) == [20, 40, 60, 80]


def test_the_forest_has_a_row_for_each_domain_and_label() -> None:
    score = DomainScore(0.5, (0.4, 0.6), 128, 4, 0.9, 0.5, float("nan"), 50, 0, 20.0, 0.0)
    svg = str(forest_plot({"<words>": {"base": score, "rl": score}, "mean": {"base": score, "rl": score}}))
    root = ElementTree.fromstring(svg)
    assert len(list(root.iter("circle"))) == 4
    assert "50.0 % [40.0, 60.0]" in svg
    assert "<words>" not in svg
    assert "constant" not in svg, "what was not measured is not drawn"
