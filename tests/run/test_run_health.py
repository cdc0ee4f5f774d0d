from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.core.rules import Action, Comparison, Rule
from posttrain.run.collapse import DEFAULT_RULES, with_defaults
from posttrain.run.health import QUIET_STEPS, Health, Response, RollBack
from posttrain.run.part_rules import AGREEMENT
from posttrain.store.metrics import MetricsRecord


def low(action: Action, **options: Any) -> Rule:
    return Rule("low", "reward", Comparison.BELOW, 0.5, **{"cooldown_steps": 0, "action": action, **options})


def records(*rewards: float, first: int = 1) -> list[MetricsRecord]:
    return [MetricsRecord(1, "rl", step, 0.0, {"reward": value}) for step, value in enumerate(rewards, start=first)]


def answers(health: Health, steps: Sequence[MetricsRecord]) -> list[Response]:
    return [health.observe(step) for step in steps]


def test_a_warning_is_a_sentence_and_nothing_else() -> None:
    health = Health([low(Action.WARN)])
    (response,) = answers(health, records(0.0))
    assert response == Response(("reward was 0 in step 1, below 0.5",))
    assert health.learning_rate_factor == 1.0
    assert health.good


def test_the_rate_falls_with_each_firing_and_stays_there() -> None:
    health = Health([low(Action.LOWER_RATE, factor=0.5)])
    factors = []
    for step in records(1.0, 0.0, 0.0, 1.0):
        assert health.observe(step).stop is None
        factors.append(health.learning_rate_factor)
    assert factors == [1.0, 0.5, 0.25, 0.25]


def test_a_stop_says_why_and_goes_before_a_roll_back() -> None:
    stop = Rule("nan", "reward", Comparison.NOT_FINITE, action=Action.STOP)
    back = Rule("also", "reward", Comparison.NOT_FINITE, action=Action.ROLL_BACK)
    (response,) = answers(Health([back, stop]), records(math.nan))
    assert response.stop == "reward was not finite in step 1"
    assert response.roll_back is None
    assert len(response.sentences) == 2


def test_a_roll_back_carries_the_gravest_factor() -> None:
    rules = [low(Action.ROLL_BACK, factor=0.5), low(Action.ROLL_BACK, factor=0.25)]
    (response,) = answers(Health(rules), records(0.0))
    assert response.roll_back == RollBack(1, 0.25, "reward was 0 in step 1, below 0.5")


def test_after_a_roll_back_the_rate_stays_low() -> None:
    roll_backs = [RollBack(30, 0.5, "r"), RollBack(25, 0.2, "r")]
    health = Health([low(Action.ROLL_BACK)], records(1.0, 1.0), roll_backs)
    assert health.learning_rate_factor == pytest.approx(0.1)
    assert health.values() == {"roll_backs": 2.0}


def test_a_stage_rolls_back_no_more_often_than_it_may() -> None:
    rule = low(Action.ROLL_BACK)
    once = [RollBack(3, 0.5, "r")]
    (response,) = answers(Health([rule], roll_backs=once, max_roll_backs=1), records(0.0))
    assert response.roll_back is None
    assert response.stop is not None
    assert "roll-backs so far: 1" in response.stop
    (response,) = answers(Health([rule], roll_backs=once, max_roll_backs=2), records(0.0))
    assert response.roll_back is not None


def test_a_checkpoint_is_not_good_while_trouble_begins_or_is_fresh() -> None:
    health = Health([low(Action.LOWER_RATE, for_steps=2)])
    good = []
    for step in records(1.0, 0.0, 0.0, *[1.0] * QUIET_STEPS):
        health.observe(step)
        good.append(health.good)
    assert good == [True, False, False, *[False] * (QUIET_STEPS - 1), True]


@settings(deadline=None, max_examples=40)
@given(st.lists(st.sampled_from([0.0, 0.3, 1.0, math.nan]), min_size=1, max_size=25), st.data())
def test_a_resumed_stage_is_treated_as_if_it_had_never_stopped(rewards: list[float], data: st.DataObject) -> None:
    rules = [
        low(Action.LOWER_RATE, for_steps=2, cooldown_steps=3),
        Rule("back", "reward", Comparison.BELOW, 0.1, for_steps=3, action=Action.ROLL_BACK),
        *DEFAULT_RULES,
    ]
    roll_backs = [RollBack(9, 0.3, "r")]
    steps = records(*rewards)
    cut = data.draw(st.integers(0, len(steps)))
    whole, resumed = Health(rules, (), roll_backs), Health(rules, steps[:cut], roll_backs)
    answers(whole, steps[:cut])
    assert (whole.learning_rate_factor, whole.good) == (resumed.learning_rate_factor, resumed.good)
    assert answers(whole, steps[cut:]) == answers(resumed, steps[cut:])
    assert (whole.learning_rate_factor, whole.good) == (resumed.learning_rate_factor, resumed.good)


def test_a_rule_of_a_stage_replaces_the_default_of_its_name() -> None:
    own = [Rule("mine", "reward", Comparison.BELOW, 0.0), Rule("kl_high", "kl", Comparison.ABOVE, 2.0)]
    rules = with_defaults(own)
    assert [rule for rule in rules if rule.name == "kl_high"] == [own[1]]
    assert rules[-1] == own[0]
    assert len(rules) == len(DEFAULT_RULES) + 1
    assert with_defaults(rules) == rules
    with pytest.raises(ValueError, match="different names"):
        with_defaults([own[0], own[0]])


def healthy(step: int) -> dict[str, float]:
    wave = math.sin(step)
    return {
        "reward": 0.4 + 0.1 * wave,
        "loss": 0.01 * wave,
        "grad_norm": 1.5 + wave,
        "entropy": 0.15 + 0.08 * wave,
        "kl": 0.02,
        "zero_signal_share": 0.6 + 0.25 * wave,
        "reward_spread": 0.15 + 0.1 * wave,
        "answer_entropy/words": 0.5 + 0.1 * wave,
        "constant_share/words": 0.2 + 0.2 * wave,
        "repetition": 0.1,
        "mean_tokens": 20 + 2 * wave,
        "truncated_share": 0.1,
        "no_verdict_share/words": 0.0,
        "suspect/words": 0.0,
        "suspect_of_paid/words": 0.0,
        "visible_hidden_gap/words": 0.05,
        "drift/held_out/words": 0.02,
        "audit/precision_margin/words": 0.05,
    }


def test_a_healthy_run_raises_no_default_rule() -> None:
    health = Health(DEFAULT_RULES)
    assert all(health.observe(MetricsRecord(0, "rl", n, 0.0, healthy(n))) == Response() for n in range(1, 120))


COLLAPSES = {  # one for each default rule, on top of `healthy`
    "loss_not_finite": {"loss": math.nan},
    "gradient_not_finite": {"grad_norm": math.inf},
    "reward_not_finite": {"reward": math.nan},
    "entropy_low": {"entropy": 0.001},
    "entropy_high": {"entropy": 4.0},
    "kl_high": {"kl": 0.9},
    "gradient_spike": {"grad_norm": 60.0},
    "reward_fell": {"reward": 0.05},
    "no_signal": {"zero_signal_share": 1.0},
    "rewards_alike": {"reward_spread": 0.001},
    "answers_alike": {"answer_entropy/words": 0.01},
    "constant_answer": {"constant_share/words": 0.97},
    "repetition": {"repetition": 0.8},
    "length_grew": {"mean_tokens": 100.0},
    "length_shrank": {"mean_tokens": 1.5},
    "truncated": {"truncated_share": 0.9},
    "length_jumped": {"mean_tokens": 38.0},
    "entropy_jumped": {"entropy": 0.65},
    "no_verdict": {"no_verdict_share/words": 0.5},
    "suspect": {"suspect/words": 0.01},
    "exploited": {"suspect_of_paid/words": 0.7},
    "visible_hidden_gap": {"visible_hidden_gap/words": 0.4},
    "unconfirmed": {"drift/held_out/words": 0.2},
    "unconfirmed_for_long": {"drift/held_out/words": 0.4},
    "audited_precision": {"audit/precision_margin/words": -0.01},
}
ALSO = {
    "entropy_high": ("entropy_jumped",),
    "length_grew": ("length_jumped",),
    "unconfirmed_for_long": ("unconfirmed",),
}
"""What the same collapse raises beside its own rule: an earlier sign of it."""


@pytest.mark.parametrize("rule", DEFAULT_RULES, ids=lambda rule: rule.name)
def test_each_way_to_collapse_raises_its_own_rule(rule: Rule) -> None:
    health = Health(DEFAULT_RULES)
    for step in range(1, 60):
        assert health.observe(MetricsRecord(0, "rl", step, 0.0, healthy(step))) == Response()
    collapsed = []
    for step in range(60, 80):
        values = {**healthy(step), **COLLAPSES[rule.name]}
        health.look(step, values)
        collapsed.append(health.observe(MetricsRecord(0, "rl", step, 0.0, values)))
    sentences = [sentence for response in collapsed for sentence in response.sentences]
    whys = {own.why for own in DEFAULT_RULES if own.name in (rule.name, *ALSO.get(rule.name, ()))}
    assert any(sentence.endswith(rule.why) for sentence in sentences)
    assert all(any(sentence.endswith(why) for why in whys) for sentence in sentences)
    assert any(response.stop for response in collapsed) == (rule.action is Action.STOP)
    assert bool(health.paused(80)) == (rule.action is Action.PAUSE)
    assert bool(health.quarantines) == (rule.name == "suspect")


def test_a_pause_names_its_domain_and_when_it_began_and_ends_with_the_verifier_that_caused_it() -> None:
    rule = Rule("p", "audit/precision_margin/*", Comparison.BELOW, 0.0, action=Action.PAUSE)
    steps = [MetricsRecord(0, "rl", n, 0.0, {"audit/precision_margin/words": -0.1 * (n == 2)}) for n in (1, 2, 3)]
    health = Health([rule], steps)
    assert (health.paused(1), list(health.paused(2)), list(health.paused(3))) == ({}, ["words"], ["words"])
    assert "below 0" in health.paused(2)["words"]
    assert health.values()["paused/words"] == 1.0
    assert Health([rule], steps, lifted={"words": 2}).paused(3) == {}
    assert list(Health([rule], steps, lifted={"words": 1, "sums": 9}).paused(3)) == ["words"]


def test_quarantine_acts_on_the_step_that_shows_the_cheat_and_on_all_after_it() -> None:
    rule = Rule("q", "suspect/*", Comparison.ABOVE, 0.0, action=Action.QUARANTINE)
    health = Health([rule])
    health.look(1, {"suspect/words": 0.0})
    assert not health.quarantines
    health.look(2, {"suspect/words": 0.1})
    assert list(health.quarantines) == ["suspect/words"]
    assert len(health.observe(MetricsRecord(0, "rl", 2, 0.0, {"suspect/words": 0.1})).sentences) == 1
    assert health.good
    resumed = Health([rule], [MetricsRecord(0, "rl", 2, 0.0, {"suspect/words": 0.1})])
    assert resumed.quarantines == health.quarantines
    assert resumed.observe(MetricsRecord(0, "rl", 3, 0.0, {})).sentences == ()


def test_a_part_falls_with_each_firing_for_its_own_metric_and_says_why() -> None:
    rule = Rule(
        "saturated",
        "reward_saturated/*/format",
        Comparison.ABOVE,
        0.9,
        for_steps=2,
        cooldown_steps=1,
        action=Action.LOWER_PART,
        factor=0.5,
    )
    history = [
        MetricsRecord(1, "rl", step, 0.0, {"reward_saturated/words/format": 1.0, "reward_saturated/sums/format": 0.5})
        for step in range(1, 6)
    ]
    health = Health([rule])
    responses = answers(health, history)
    assert [list(r.lowered) for r in responses] == [[], ["words/format"], [], ["words/format"], []]
    assert responses[1].lowered["words/format"].startswith("reward_saturated/words/format was 1 in step 2, above 0.9")
    assert health.part_factors == {"words/format": 0.25}
    assert health.learning_rate_factor == 1.0
    assert health.good, "a part that was learned is no trouble"
    assert Health([rule], history).part_factors == health.part_factors, "a resumed run goes by the same factors"


def test_agreement_with_audited_truth_lowers_a_part_when_an_audit_records_it() -> None:
    metric = f"{AGREEMENT}/words/process"
    rule = Rule("untrue", f"{AGREEMENT}/*/process", Comparison.BELOW, 0.8, action=Action.LOWER_PART, factor=0.25)
    health = Health([rule])
    (without, agreeing, failing) = answers(
        health, [MetricsRecord(1, "rl", n, 0.0, v) for n, v in enumerate(({}, {metric: 0.9}, {metric: 0.5}), start=1)]
    )
    assert without.lowered == agreeing.lowered == {}
    assert list(failing.lowered) == ["words/process"]
    assert health.part_factors == {"words/process": 0.25}
