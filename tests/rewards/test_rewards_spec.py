"""What a reward may say, what is filled in, and what is refused with the reason."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain.rewards.spec import BONUS_SHARE, PartSpec, RewardSpec


def spec(allow: Any = (), **parts: dict[str, Any]) -> RewardSpec:
    """With an outcome of weight 1 where none is given."""
    stated = {"outcome": {"weight": 1.0}, **parts}
    return RewardSpec({name: PartSpec(**options) for name, options in stated.items()}, list(allow))


def test_a_reward_is_the_outcome_unless_more_is_said() -> None:
    assert RewardSpec().parts == {
        "outcome": PartSpec(1.0, kind="outcome", source="score", cap=1.0, after_correctness=False)
    }
    assert RewardSpec().plain


def test_what_is_left_out_follows_from_the_kind() -> None:
    parts = spec(process={"weight": 0.3}, format={"weight": 0.1}, short={"kind": "efficiency", "weight": 0.1}).parts
    assert [(name, p.kind, p.source, p.after_correctness, p.cap) for name, p in parts.items()] == [
        ("outcome", "outcome", "score", False, 1.0),
        ("process", "process", "process", False, 0.3),
        ("format", "format", "grammar", True, 0.1),
        ("short", "efficiency", "tokens", True, 0.1),
    ]


def test_reading_what_was_filled_in_changes_nothing() -> None:
    once = spec(format={"weight": 0.1, "schedule": [(1, 0.5), (9, 2.0)]})
    assert RewardSpec(once.parts, once.allow) == once


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"outcome": {"weight": 0.0}}, "nothing asks for the answer"),
        ({"tests": {"weight": 1.0}}, "part 'tests' needs a kind"),
        ({"format": {"weight": 0.1, "after_correctness": False}}, "the form of wrong answers"),
        ({"efficiency": {"weight": 0.1, "after_correctness": False}}, "the shortest would win"),
        ({"outcome": {"weight": 1.0, "after_correctness": True}}, "cannot wait for correctness"),
        ({"format": {"weight": 0.3}, "efficiency": {"weight": 0.3}}, "may add 0.6 in all, more than 0.5 times"),
        ({"format": {"weight": 0.1, "cap": 0.6}}, "may add 0.6 in all"),
        ({"format": {"weight": 0.1, "schedule": [(1, 6.0)]}}, "may add 0.6 in all"),
        ({"outcome": {"weight": 1.0, "schedule": [(1, 1.0), (5, 0.5)]}}, "its schedule lowers it"),
        ({"format": {"weight": 0.1, "source": "tokens"}}, "and nothing else, is measured by a cost"),
        ({"efficiency": {"weight": 0.1, "source": "speed"}}, "and nothing else, is measured by a cost"),
        ({"process": {"weight": 0.9, "source": "grammar"}}, "says nothing of its process"),
        ({"format": {"weight": 0.1, "null_level": 0.2}}, "null_level is the outcome's"),
        ({"process": {"weight": 0.1, "budget": 9.0}}, "a budget has no effect"),
        ({"efficiency": {"weight": 0.1, "gate": 0.2}}, "a gate needs a budget"),
    ],
)
def test_contradictions_are_refused_with_the_reason(parts: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        spec(**parts)


@pytest.mark.parametrize(
    ("allowance", "parts"),
    [
        ("format_before_correctness", {"format": {"weight": 0.1, "after_correctness": False}}),
        ("large_bonus", {"format": {"weight": 0.3}, "efficiency": {"weight": 0.3}}),
        ("lowered_outcome", {"outcome": {"weight": 1.0, "schedule": [(1, 1.0), (5, 0.5)]}}),
    ],
)
def test_some_are_accepted_where_they_are_allowed_by_name(allowance: str, parts: dict[str, Any]) -> None:
    assert spec([allowance], **parts).allow == [allowance]
    others = {"format_before_correctness", "large_bonus", "lowered_outcome"} - {allowance}
    with pytest.raises(ValueError, match="allow = "):
        spec(sorted(others), **parts)


def test_wrong_answers_earn_nothing_by_their_length_whatever_is_allowed() -> None:
    with pytest.raises(ValueError, match="the shortest would win"):
        spec(
            ["format_before_correctness", "large_bonus", "lowered_outcome"],
            efficiency={"weight": 0.1, "after_correctness": False},
        )


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"weight": -0.1}, "weight must be at least 0"),
        ({"weight": float("nan")}, "weight must be at least 0"),
        ({"weight": 0.3, "cap": 0.2}, "reaches 0.3, above its cap of 0.2"),
        ({"weight": 0.3, "cap": 0.4, "schedule": [(1, 2.0)]}, "reaches 0.6, above its cap of 0.4"),
        ({"weight": 1.0, "null_level": 1.0}, "null_level must lie in"),
        ({"weight": 1.0, "gate": 1.1}, "gate must lie in"),
        ({"weight": 1.0, "schedule": [(5, 1.0), (5, 0.5)]}, "must rise"),
        ({"weight": 1.0, "schedule": [(0, 1.0)]}, "must rise, from 1 or later"),
        ({"weight": 1.0, "schedule": [(1, -1.0)]}, "factors of a schedule"),
    ],
)
def test_numbers_that_mean_nothing_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        PartSpec(**options)


def test_a_schedule_is_linear_between_its_points_and_constant_outside() -> None:
    part = PartSpec(0.4, schedule=[(3, 0.0), (7, 1.0)])
    assert [part.weight_at(step) for step in (1, 3, 4, 5, 7, 99)] == pytest.approx([0.0, 0.0, 0.1, 0.2, 0.4, 0.4])
    assert PartSpec(0.4).weight_at(17) == 0.4
    assert PartSpec(0.4).weight_at(17, 0.25) == 0.1


POINTS = st.dictionaries(st.integers(1, 50), st.floats(0.0, 8.0), min_size=1).map(lambda points: sorted(points.items()))


@given(
    schedule=POINTS,
    weight=st.floats(0.0, 1.0),
    step=st.integers(1, 60),
    lowered=st.floats(0.0, 1.0, exclude_min=True),
)
def test_no_weight_is_ever_above_its_cap_nor_the_bonus_above_its_share(
    schedule: list[tuple[int, float]], weight: float, step: int, lowered: float
) -> None:
    part = {"kind": "format", "weight": weight, "schedule": schedule}
    try:
        found = spec(format=part, efficiency={"weight": 0.1})
    except ValueError:
        return
    weights = found.weights_at(step, {"format": lowered})
    cap = found.parts["format"].cap
    assert cap is not None
    assert 0.0 <= weights["format"] <= cap * (1 + 1e-12)
    assert weights["format"] + weights["efficiency"] <= BONUS_SHARE * weights["outcome"] * (1 + 1e-12)
