"""Coefficients that follow a measurement, and what they tell the learner."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from posttrain.run.rl_stage import EntropyConfig, KLConfig, RlStage
from posttrain.run.steering import LARGEST, NEUTRAL, SMALLEST, Steering


def stage(**fields: Any) -> RlStage:
    return RlStage(kind="rl", **fields)


STEERED = stage(kl=KLConfig(target=0.05, max_change=0.1), entropy=EntropyConfig(target=0.5, max_change=0.2))


def test_a_kl_above_its_target_raises_the_coefficient_and_one_below_lowers_it() -> None:
    assert NEUTRAL.after({"kl": 0.5}, STEERED).kl == pytest.approx(1.1)
    assert NEUTRAL.after({"kl": 0.0}, STEERED).kl == pytest.approx(0.9)
    assert NEUTRAL.after({"kl": 0.05}, STEERED).kl == 1.0
    assert NEUTRAL.after({"kl": 0.0525}, STEERED).kl == pytest.approx(1.05)


def test_an_entropy_below_its_target_raises_the_bonus_and_one_above_lowers_it() -> None:
    assert NEUTRAL.after({"entropy": 0.1}, STEERED).entropy == pytest.approx(1.2)
    assert NEUTRAL.after({"entropy": 2.0}, STEERED).entropy == pytest.approx(0.8)


def test_without_a_target_or_a_measurement_nothing_moves() -> None:
    assert NEUTRAL.after({"kl": 9.0, "entropy": 0.0}, stage(kl=KLConfig(), entropy=EntropyConfig())) == NEUTRAL
    assert NEUTRAL.after({}, STEERED) == NEUTRAL


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(0, 1e6), max_size=200))
def test_the_factor_stays_between_its_bounds_whatever_is_measured(measured: list[float]) -> None:
    steering = NEUTRAL
    for value in measured:
        steering = steering.after({"kl": value, "entropy": value}, STEERED)
        assert SMALLEST <= steering.kl <= LARGEST
        assert SMALLEST <= steering.entropy <= LARGEST


def test_the_state_comes_back_from_a_checkpoint_and_from_a_record_exactly() -> None:
    steering = Steering(kl=1.1 * 1.1, entropy=0.7, learning_rate=0.5, parts={"words/format": 0.25})
    plain = json.loads(json.dumps(asdict(steering)))
    assert TypeAdapter(Steering).validate_python(plain) == steering
    assert Steering.of(json.loads(json.dumps(steering.values()))) == steering
    assert NEUTRAL.values() == {}


def test_the_learner_hears_of_a_factor_only_for_a_loss_that_the_stage_has() -> None:
    moved = Steering(kl=2.0, entropy=3.0, learning_rate=0.5)
    assert moved.controls(stage(), further_update=False).loss_factors == {}
    controls = moved.controls(STEERED, further_update=True)
    assert controls.loss_factors == {"kl_penalty": 2.0, "entropy_bonus": 3.0}
    assert controls.further_update
    assert controls.learning_rate_factor == 0.5


def test_in_the_reward_the_coefficient_itself_is_steered() -> None:
    in_reward = stage(kl=KLConfig(coefficient=0.02, place="reward", estimator="k1"))
    assert Steering(kl=3.0).kl_in_reward(in_reward) == pytest.approx(0.06)
    assert Steering(kl=3.0).controls(in_reward, further_update=False).loss_factors == {}
    assert Steering(kl=3.0).kl_in_reward(STEERED) == 0.0
