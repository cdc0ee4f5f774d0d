"""Parts, weights and gates make one total; no verdict makes none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain.core.types import Verdict, VerdictStatus
from posttrain.rewards.compose import compose, outcome_reward

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
