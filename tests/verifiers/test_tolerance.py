"""Numbers within a tolerance."""

from __future__ import annotations

from typing import Any

import pytest

from posttrain.core.types import VerdictStatus
from posttrain.verifiers.flags import Flag
from posttrain.verifiers.tolerance import NumberWithin

CORRECT, INCORRECT = VerdictStatus.CORRECT, VerdictStatus.INCORRECT


def status(answer: str, **gold: Any) -> VerdictStatus:
    return NumberWithin().verify(f"Answer: {answer}", gold).status


@pytest.mark.parametrize(
    ("answer", "gold", "expected"),
    [
        ("3.14", {"value": "3.14159", "absolute": 0.01}, CORRECT),
        ("3.15159", {"value": "3.14159", "absolute": "0.01"}, CORRECT),
        ("3.1515901", {"value": "3.14159", "absolute": "0.01"}, INCORRECT),
        ("0.3", {"value": 0.2, "absolute": 0.1}, CORRECT),
        ("101", {"value": 100, "relative": 0.01}, CORRECT),
        ("101.0000001", {"value": 100, "relative": 0.01}, INCORRECT),
        ("-99", {"value": -100, "relative": 0.01}, CORRECT),
        ("99", {"value": -100, "relative": 0.01}, INCORRECT),
        ("0", {"value": 0, "relative": 0.5}, CORRECT),
        ("0.001", {"value": 0, "relative": 0.5}, INCORRECT),
        ("0.001", {"value": 0, "relative": 0.5, "absolute": 0.001}, CORRECT),
    ],
)
def test_the_bound_itself_is_within_and_the_larger_tolerance_counts(
    answer: str, gold: dict[str, Any], expected: VerdictStatus
) -> None:
    assert status(answer, **gold) is expected


def test_a_unit_is_asked_for_where_the_task_names_one_and_refused_where_not() -> None:
    with_unit = {"value": 5, "absolute": 1, "unit": "m/s"}
    assert status("5 m/s", **with_unit) is CORRECT
    assert status("5m/s", **with_unit) is CORRECT
    for other in ("5", "5 km/s", "5 M/S", "5 m/s m/s", "m/s"):
        assert status(other, **with_unit) is INCORRECT
    assert NumberWithin().verify("Answer: 5", with_unit).flags == (Flag.WRONG_UNIT,)
    assert status("5 m", value=5, absolute=1) is INCORRECT


@pytest.mark.parametrize(
    "gold",
    [
        None,
        5,
        {"value": 5},
        {"value": 5, "absolute": 0, "relative": 0},
        {"value": 5, "absolute": -1},
        {"value": 5, "absolute": 1, "relative": -1},
        {"value": 5, "relative": 1},
        {"value": True, "absolute": 1},
        {"value": "5+7", "absolute": 1},
        {"value": "nan", "absolute": 1},
        {"value": float("nan"), "absolute": 1},
        {"value": 5, "absolute": float("inf")},
        {"value": 1e300, "absolute": 1},
        {"value": 5, "absolute": 1, "tolerance": 3},
        {"value": 5, "absolute": 1, "unit": " m"},
    ],
)
def test_a_task_without_a_sound_tolerance_is_an_error(gold: Any) -> None:
    with pytest.raises(ValueError, match="tolerance"):
        NumberWithin().verify("Answer: 5", gold)


def test_the_reason_tells_nothing_of_the_task() -> None:
    verdict = NumberWithin().verify("Answer: 1", {"value": "8123.5", "absolute": "0.25"})
    assert "8123" not in f"{verdict.reason}{verdict.evidence}"
