"""Parts, weights and gates make one total; no verdict makes none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain.core.types import Verdict, VerdictStatus
from posttrain.rewards.compose import compose, counted, outcome_reward, total

PARTS = st.dictionaries(st.sampled_from(["outcome", "format", "length"]), st.floats(-10, 10), min_size=1)


@given(parts=PARTS, gates=st.dictionaries(st.sampled_from(["finished", "honest"]), st.booleans()))
def test_total_can_be_recomputed_from_what_is_recorded(parts: dict[str, float], gates: dict[str, bool]) -> None:
    reward = compose(parts, dict.fromkeys(parts, 0.5), gates)
    total = sum(reward.parts[name] * reward.weights[name] for name in reward.parts) * all(reward.gates.values())
    assert reward.total == pytest.approx(total)


def test_closed_gate_gives_zero_and_keeps_the_parts() -> None:
    reward = compose({"outcome": 1.0}, {"outcome": 1.0}, {"finished": False})
    assert reward.total == 0.0
    assert reward.parts == {"outcome": 1.0}


def test_part_without_a_weight_is_refused() -> None:
    with pytest.raises(ValueError, match="do not name the same things"):
        compose({"outcome": 1.0, "format": 1.0}, {"outcome": 1.0})


def test_outcome_is_the_verdicts_score() -> None:
    half = outcome_reward(Verdict(VerdictStatus.CORRECT, 0.5))
    assert half is not None
    assert half.total == 0.5
    wrong = outcome_reward(Verdict.incorrect("other number"))
    assert wrong is not None
    assert wrong.total == 0.0


def test_no_verdict_is_no_reward_rather_than_zero() -> None:
    assert outcome_reward(Verdict.none("the sandbox broke")) is None


RAW = {"outcome": 0.25, "process": 0.5, "format": 1.0}
WEIGHTS = {"outcome": 1.0, "process": 0.4, "format": 0.1}


def test_value_above_chance_is_zero_at_the_null_level_and_one_at_the_top() -> None:
    for score, expected in ((0.25, 0.0), (1.0, 1.0), (0.625, 0.5), (0.0, -1 / 3)):
        assert compose({"o": score}, {"o": 1.0}, null_levels={"o": 0.25}).total == pytest.approx(expected)


def test_withheld_part_counts_as_nothing_and_is_recorded_as_measured() -> None:
    reward = compose(RAW, WEIGHTS, withheld=("format",))
    assert reward.total == pytest.approx(0.25 + 0.4 * 0.5)
    assert reward.parts == RAW
    assert counted(reward) == {**RAW, "format": 0.0}


def test_shut_gate_is_worth_no_more_than_the_worst_answer_even_above_chance() -> None:
    null_levels = {"outcome": 0.25, "process": 0.5}
    worst = compose(dict.fromkeys(RAW, 0.0), WEIGHTS, null_levels=null_levels)
    assert compose(RAW, WEIGHTS, {"format": False}, null_levels=null_levels).total == worst.total < 0.0


def test_names_that_are_no_parts_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\['speed'\] are none of the parts"):
        compose(RAW, WEIGHTS, withheld=("speed",))


@given(parts=PARTS, shut=st.booleans(), null_level=st.floats(0.0, 0.9))
def test_total_is_the_same_computed_again(parts: dict[str, float], shut: bool, null_level: float) -> None:
    name = next(iter(parts))
    reward = compose(
        parts, dict.fromkeys(parts, 0.3), {"g": not shut}, withheld=(name,), null_levels={name: null_level}
    )
    assert total(reward) == reward.total
