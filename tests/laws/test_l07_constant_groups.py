"""L7: a constant group is exactly zero, in every registered advantage; what is not is finite and within the clip."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.rewards.parts import ADVANTAGES, BY_GROUP, NOTHING, annotated, component, siblings, steps, with_reward

from posttrain.core.types import Annotations, Group

FINITE = st.floats(-1e6, 1e6)


def constant(groups: list[Group], value: float) -> list[Group]:
    """The same attempts, in every group of the same outcome."""
    return [
        dataclasses.replace(group, trajectories=tuple(with_reward(t, value) for t in group.trajectories))
        for group in groups
    ]


@pytest.mark.parametrize("name", [*BY_GROUP, "part_mean_std"])
@settings(max_examples=50, deadline=None)
@given(value=FINITE, size=st.integers(1, 33))
@example(0.1, 3)
@example(0.2, 6)
@example(0.7, 7)
@example(1 / 3, 31)
def test_constant_group_is_exactly_zero(name: str, value: float, size: int) -> None:
    for array in component(name)([siblings([value] * size)], NOTHING)[0]:
        assert not array.any()


@pytest.mark.parametrize("name", [*BY_GROUP, "part_mean_std", "batch_whitened"])
@settings(max_examples=40, deadline=None)
@given(groups=steps(), value=FINITE)
def test_constant_group_is_exactly_zero_beside_groups_that_are_not(
    name: str, groups: list[Group], value: float
) -> None:
    """With several turns and attempts without a verdict; REINFORCE++ where it has the group as its baseline."""
    advantage = component(name, group_baseline=True) if name == "batch_whitened" else component(name)
    silent = constant(groups[:1], value)
    for array in advantage([*silent, *groups[1:]], NOTHING)[0]:
        assert not array.any()


@settings(max_examples=40, deadline=None)
@given(groups=steps(), value=FINITE)
def test_constant_step_is_exactly_zero_where_the_step_is_the_baseline(groups: list[Group], value: float) -> None:
    equal = constant(groups, value)
    expected_nothing = Annotations(
        values={t.trajectory_id: np.zeros(len(t.tokens), np.float32) for group in equal for t in group.trajectories}
    )
    for name in ("batch_whitened", "gae"):
        for arrays in component(name)(equal, expected_nothing):
            assert not any(array.any() for array in arrays)


@pytest.mark.parametrize("name", ADVANTAGES)
@settings(max_examples=40, deadline=None)
@given(groups=steps(), clip=st.floats(0.1, 100.0), scale=st.sampled_from([1.0, 1e4]))
def test_advantages_are_finite_and_within_the_stated_clip(
    name: str, groups: list[Group], clip: float, scale: float
) -> None:
    scaled = [
        dataclasses.replace(
            group,
            trajectories=tuple(with_reward(t, scale * (t.reward.total if t.reward else 0)) for t in group.trajectories),
        )
        for group in groups
    ]
    for arrays in component(name, clip=clip)(scaled, annotated(scaled, kl=0.3)):
        for array in arrays:
            assert array.dtype == np.float32
            assert np.isfinite(array).all()
            assert np.abs(array).max() <= np.float32(clip)


@pytest.mark.parametrize("name", [*BY_GROUP, "part_mean_std"])
@settings(max_examples=40, deadline=None)
@given(rewards=st.lists(st.floats(0, 1), min_size=2, max_size=16), shift=st.floats(-1e3, 1e3))
def test_a_constant_added_to_every_reward_changes_nothing(name: str, rewards: list[float], shift: float) -> None:
    plain = np.asarray(component(name)([siblings(rewards)], NOTHING)[0])
    shifted = np.asarray(component(name)([siblings([reward + shift for reward in rewards])], NOTHING)[0])
    assert np.allclose(plain, shifted, atol=1e-5)


@pytest.mark.parametrize("name", BY_GROUP)
@settings(max_examples=40, deadline=None)
@given(groups=steps(min_size=2, may_fail=False))
def test_first_tokens_of_a_group_sum_to_zero(name: str, groups: list[Group]) -> None:
    """Every attempt's first turn is compared with all siblings'."""
    for group, arrays in zip(groups, component(name, clip=1e9)(groups, NOTHING), strict=True):
        first = [float(array[t.sampled][0]) for t, array in zip(group.trajectories, arrays, strict=True)]
        assert sum(first) == pytest.approx(0.0, abs=1e-3)


@pytest.mark.parametrize("name", ADVANTAGES)
def test_no_groups_give_no_advantages(name: str) -> None:
    assert component(name)([], NOTHING) == []
