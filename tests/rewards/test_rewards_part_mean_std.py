"""GDPO's advantage: every part normalised by itself, weighed, summed, divided by the step's spread."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rewards.parts import NOTHING, attempt, credit, group, siblings

from posttrain.core.errors import NonFiniteError
from posttrain.core.types import Group, Reward
from posttrain.rewards.compose import compose
from posttrain.rewards.group_mean_std import GroupMeanStd
from posttrain.rewards.part_mean_std import PartMeanStd

WEIGHTS = {"outcome": 1.0, "process": 0.5}
COLUMNS = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=8)


def grouped(rows: Sequence[Mapping[str, float]], weights: Mapping[str, float] = WEIGHTS, name: str = "g") -> Group:
    return group(
        *(
            dataclasses.replace(attempt(0.0, name=f"{name}/{place}"), reward=compose(row, weights))
            for place, row in enumerate(rows)
        )
    )


def rows(columns: Sequence[tuple[float, float]]) -> list[dict[str, float]]:
    return [{"outcome": a, "process": b} for a, b in columns]


def credits(*groups: Group) -> list[list[float]]:
    arrays = PartMeanStd(clip=1e9)(groups, NOTHING)
    return [credit(arrays_G, of_one) for arrays_G, of_one in zip(arrays, groups, strict=True)]


def test_it_is_the_weighed_sum_of_normalised_parts_over_the_steps_spread() -> None:
    mixed = grouped(rows([(1.0, 0.0), (0.0, 0.0), (0.0, 1.0), (1.0, 1.0)]))
    std = np.std([1, 0, 0, 1], ddof=1) + 1e-4
    sums = (np.asarray([0.5, -0.5, -0.5, 0.5]) + 0.5 * np.asarray([-0.5, -0.5, 0.5, 0.5])) / std
    expected = sums / (np.std(sums, ddof=1) + 1e-4)
    assert credits(mixed)[0] == pytest.approx(expected.tolist(), rel=1e-5)


def test_mixtures_with_one_total_keep_different_credit() -> None:
    """What the normalised total cannot tell apart, since only the sum of the parts reaches it."""
    weights = {"outcome": 1.0, "process": 1.0}
    mixed = grouped(rows([(1.0, 0.0), (0.0, 1.0), (0.0, 0.0), (0.0, 0.0), (0.0, 1.0)]), weights)
    together = credit(GroupMeanStd()([mixed], NOTHING)[0], mixed)
    apart = credits(mixed)[0]
    assert together[0] == together[1]
    assert apart[0] > apart[1]


@settings(max_examples=60, deadline=None)
@given(
    columns=COLUMNS,
    shift=st.floats(-5, 5),
    scale=st.floats(0.5, 20),
)
def test_neither_shift_nor_scale_of_a_part_changes_anything(
    columns: list[tuple[float, float]], shift: float, scale: float
) -> None:
    rounded = [(round(a, 1), round(b, 1)) for a, b in columns]  # spreads of 0 or far above the offset
    moved = rows([(a, scale * b + shift) for a, b in rounded])
    assert credits(grouped(moved))[0] == pytest.approx(credits(grouped(rows(rounded)))[0], abs=2e-2)


@settings(max_examples=60, deadline=None)
@given(outcomes=st.lists(st.floats(0, 1), min_size=1, max_size=8), constant=st.floats(-1e6, 1e6))
def test_a_constant_part_contributes_exactly_nothing(outcomes: list[float], constant: float) -> None:
    with_it = grouped([{"outcome": a, "process": constant} for a in outcomes])
    without = grouped([{"outcome": a} for a in outcomes], {"outcome": 1.0})
    assert credits(with_it) == credits(without)


@settings(max_examples=60, deadline=None)
@given(values=st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)), size=st.integers(1, 17), other=COLUMNS)
def test_group_without_differences_has_no_credit_whatever_the_others_have(
    values: tuple[float, float], size: int, other: list[tuple[float, float]]
) -> None:
    assert set(credits(grouped(rows([values] * size)), grouped(rows(other), name="h"))[0]) == {0.0}


def test_part_of_weight_zero_contributes_nothing() -> None:
    columns = rows([(1.0, 0.3), (0.0, 0.9), (1.0, 0.1)])
    weighed = credits(grouped(columns, {"outcome": 1.0, "process": 0.0}))
    assert weighed == credits(grouped([{"outcome": r["outcome"]} for r in columns], {"outcome": 1.0}))


def test_what_counts_is_normalised_and_not_what_was_measured() -> None:
    """Withheld from the wrong answer, so that the correct one alone has it."""
    right = compose({"outcome": 1.0, "process": 1.0}, WEIGHTS)
    wrong = compose({"outcome": 0.0, "process": 1.0}, WEIGHTS, withheld=("process",))
    pair = group(
        dataclasses.replace(attempt(1.0, name="g/0"), reward=right),
        dataclasses.replace(attempt(0.0, name="g/1"), reward=wrong),
    )
    alike = grouped(rows([(1.0, 1.0), (0.0, 0.0)]))
    assert credits(pair) == credits(alike)


def test_what_turns_earned_is_one_more_part() -> None:
    same = [attempt(1.0, (1, 1), name=f"g/{place}", turn_rewards=[earned]) for place, earned in enumerate((0.0, 3.0))]
    worse, better = credits(group(*same))[0]
    assert worse == -better < 0.0


def test_a_reward_that_is_not_finite_is_refused() -> None:
    pair = siblings([1.0, 0.0])
    broken = dataclasses.replace(pair.trajectories[0], reward=Reward(float("nan"), {"o": float("nan")}, {"o": 1.0}))
    with pytest.raises(NonFiniteError, match="the reward of trajectory g/0 is nan"):
        PartMeanStd()([group(broken, pair.trajectories[1])], NOTHING)
