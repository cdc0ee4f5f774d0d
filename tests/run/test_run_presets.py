"""Presets are visible options under the user's own; options that contradict one another are refused with the reason."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from posttrain.core.errors import ConfigError
from posttrain.core.registry import build
from posttrain.run.load import dump, parse
from posttrain.run.presets import PRESETS, contradictions, with_preset
from posttrain.run.rl_stage import RlStage

NAMES = ["cispo", "dapo", "dr_grpo", "gspo", "grpo", "ppo", "reinforce_plus_plus", "rloo"]


def stage(**options: Any) -> dict[str, Any]:
    return {"kind": "rl", **options}


def found(**options: Any) -> list[str]:
    """What is refused of a stage that is otherwise as plain as can be."""
    plain = dataclasses.asdict(RlStage(kind="rl"))
    return contradictions({**plain, **options})


def kl(**options: Any) -> dict[str, Any]:
    return {"coefficient": 0.1, "estimator": "k1", "place": "loss", "target": 0.0, **options}


def test_all_published_recipes_are_there() -> None:
    assert sorted(PRESETS) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_preset_is_a_stage_without_contradictions_whose_components_can_be_built(name: str) -> None:
    config = parse({"model": "m", "domains": {"arithmetic": {}}, "stages": [with_preset(stage(preset=name))]})
    (rl,) = config.stages
    assert isinstance(rl, RlStage)
    for loss in rl.losses:
        build("loss", loss)
    advantage = build("advantage", rl.advantage)
    assert advantage.needs_values == (rl.critic is not None)


@pytest.mark.parametrize("name", NAMES)
def test_preset_names_options_of_a_stage_and_nothing_else(name: str) -> None:
    assert PRESETS[name].keys() <= {field.name for field in dataclasses.fields(RlStage)}


@pytest.mark.parametrize("name", NAMES)
def test_preset_laid_under_its_own_result_changes_nothing(name: str) -> None:
    once = with_preset(stage(preset=name, kl={"coefficient": 0.5}, loss={"name": "reinforce"}, steps=3))
    assert with_preset(once) == once


@pytest.mark.parametrize("name", NAMES)
def test_recorded_configuration_is_read_back_equal(name: str) -> None:
    raw = {"model": "m", "domains": {"arithmetic": {}}, "stages": [with_preset(stage(preset=name))]}
    recorded = dump(parse(raw))
    again = {**recorded, "stages": [with_preset(table) for table in recorded["stages"]]}
    assert parse(again) == parse(raw)


def test_users_options_stand_above_the_presets() -> None:
    merged = with_preset(stage(preset="grpo", reduction="token_mean", loss={"clip_high": 0.3}, kl={"coefficient": 0.5}))
    assert merged["reduction"] == "token_mean"
    assert merged["loss"] == {**PRESETS["grpo"]["loss"], "clip_high": 0.3}
    assert merged["kl"] == {"place": "loss", "estimator": "k3", "coefficient": 0.5}
    assert merged["advantage"] == {"name": "group_mean_std"}


def test_another_component_takes_none_of_the_presets_options() -> None:
    assert with_preset(stage(preset="grpo", loss={"name": "reinforce"}))["loss"] == {"name": "reinforce"}


def test_what_was_left_out_on_purpose_stays_out() -> None:
    assert with_preset(stage(preset="grpo", kl=None))["kl"] is None


def test_without_a_preset_nothing_is_added() -> None:
    assert with_preset(stage(steps=3)) == stage(steps=3)


def test_other_stages_have_no_presets() -> None:
    assert with_preset({"kind": "sft", "preset": "grpo"}) == {"kind": "sft", "preset": "grpo"}


def test_result_may_be_changed_without_changing_the_preset() -> None:
    with_preset(stage(preset="grpo"))["loss"]["clip_low"] = 9.0
    assert PRESETS["grpo"]["loss"]["clip_low"] == 0.2


@pytest.mark.parametrize("name", ["gpro", 3])
def test_unknown_preset_is_refused_with_the_known_ones(name: object) -> None:
    with pytest.raises(ConfigError, match="known: cispo, dapo"):
        with_preset(stage(preset=name))


def test_plain_stage_is_fine() -> None:
    assert found() == []


CONTRADICTIONS: list[tuple[dict[str, Any], str]] = [
    ({"kl": kl(place="reward", estimator="k2")}, "has another gradient than that of the KL"),
    ({"kl": kl(place="reward", estimator="k3")}, "has another gradient than that of the KL"),
    ({"kl": kl(place="reward"), "loss": {"name": "mine", "kl_coefficient": 0.1}}, "penalised twice"),
    ({"kl": kl(coefficient=0.0, target=0.01)}, "kl.target steers kl.coefficient by a factor"),
    ({"entropy": {"coefficient": 0.0, "target": 1.0}}, "entropy.target steers entropy.coefficient"),
    ({"advantage": {"name": "gae"}}, "needs the values of a critic"),
    ({"critic": {"coefficient": 0.5}}, "a critic is trained for nothing"),
    ({"critic": {"coefficient": 0.0}, "advantage": {"name": "gae"}}, "random values"),
    *(({"group_size": 1, "advantage": {"name": name}}, "no sibling to compare with") for name in (
        "group_mean", "group_mean_std", "leave_one_out", "per_step")),
    ({"group_size": 1, "advantage": {"name": "batch_whitened", "group_baseline": True}}, "no sibling to compare with"),
    ({"refill_rounds": 1, "advantage": {"name": "batch_whitened"}}, "learns from those"),
    *(({"loss": {"name": name}}, "reads no advantage") for name in (
        "entropy_bonus", "kl_penalty", "value", "supervised")),
    ({"loss": {"name": "gspo"}}, "gspo weighs whole sequences"),
    ({"loss": {"name": "gspo"}, "reduction": "fixed_length"}, "gspo weighs whole sequences"),
    ({"loss": {"name": "gspo", "length_normalized": False}, "reduction": "sequence_mean"}, 'take "fixed_length"'),
    ({"loss": {"name": "clipped_policy_gradient", "dual_clip": 1.0}}, "it must be above 1"),
    ({"fixed_length_tokens": 8}, "fixed_length_tokens has no effect"),
    ({"overlong_buffer_tokens": 8}, "overlong_buffer_tokens has no effect"),
    ({"overlong_buffer_tokens": 8, "truncated": "mask"}, "overlong_buffer_tokens has no effect"),
    ({"max_update_kl": 0.1}, "there is one"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "reason"), CONTRADICTIONS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_contradiction_is_refused_with_its_reason_alone(options: dict[str, Any], reason: str) -> None:
    (sentence,) = found(**options)
    assert reason in sentence


def test_staleness_needs_a_loss_with_an_importance_correction() -> None:
    assert any("needs an importance correction" in s for s in found(loss={"name": "supervised"}, max_staleness=1))


def test_two_penalties_of_one_kl_are_refused() -> None:
    assert any("penalised twice" in s for s in found(kl=kl(), loss={"name": "kl_penalty"}))


@pytest.mark.parametrize(
    "options",
    [
        {"kl": kl(place="reward")},
        {"kl": kl(estimator="k3", target=0.1)},
        {"advantage": {"name": "gae"}, "critic": {"coefficient": 0.5}, "group_size": 1},
        {"advantage": {"name": "batch_whitened"}, "group_size": 1},
        {"advantage": {"name": "batch_whitened", "group_baseline": True}, "refill_rounds": 2},
        {"advantage": {"name": "mine.py:Mine"}, "critic": {"coefficient": 0.5}, "group_size": 1},
        {"loss": {"name": "mine.py:Mine"}, "max_staleness": 2},
        {"loss": {"name": "gspo"}, "reduction": "sequence_mean", "max_staleness": 2},
        {"loss": {"name": "gspo", "length_normalized": False}, "reduction": "fixed_length"},
        {"loss": {"name": "clipped_policy_gradient", "dual_clip": 3.0}},
        {"loss": {"clip_low": 0.1}, "advantage": {}},
        {"max_update_kl": 0.1, "updates_per_step": 2},
        {"max_update_kl": 0.1, "epochs": 2},
        {"fixed_length_tokens": 8, "reduction": "fixed_length"},
        {"overlong_buffer_tokens": 8, "truncated": "penalise"},
        {"group_size": 2, "refill_rounds": 3},
    ],
)
def test_what_goes_together_is_not_refused(options: dict[str, Any]) -> None:
    assert found(**options) == []
