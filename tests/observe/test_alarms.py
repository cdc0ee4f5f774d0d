from __future__ import annotations

from dataclasses import replace

import pytest

from posttrain.core.rules import Comparison, Rule
from posttrain.core.types import DomainScore, EvalReport
from posttrain.observe.alarms import alarms
from posttrain.store.metrics import MetricsRecord

GOOD = {"reward": 0.5, "loss": 0.1, "no_verdict": 0.0, "mismatch": 0.01, "zero_signal_share": 0.3}
SCORE = DomainScore(0.5, (0.45, 0.55), 128, 4, 0.9, 0.5, 0.1, 50, 0, 20.0, 0.0)


def records(**last: float) -> list[MetricsRecord]:
    steps = [MetricsRecord(1, "rl", step, 0.0, GOOD) for step in range(1, 10)]
    return [*steps, MetricsRecord(1, "rl", 10, 0.0, {**GOOD, **last})]


def report(label: str, score: DomainScore) -> EvalReport:
    return EvalReport(label, "m", 0, "s", {"words": score}, score, (), 1.0)


def test_a_sound_run_raises_no_alarm() -> None:
    assert alarms(records(), [report("base", SCORE), report("rl", SCORE)]) == []
    assert alarms([], []) == []


@pytest.mark.parametrize(
    ("last", "sentence"),
    [
        ({"no_verdict": 3.0}, "3 attempts in 1 training step got no verdict, through failures of ours"),
        ({"loss": float("nan")}, "loss was not finite in 1 step, first in step 10 of rl"),
        ({"mismatch": 0.2}, "at the end of rl, sampler and trainer differ by 0.20 nats a token"),
        ({"truncated_share": 0.75}, "at the end of rl, 75% of the attempts were cut off by a length limit"),
        ({"zero_signal_share": 0.95}, "at the end of rl, 95% of the groups gave no signal: nearly nothing is learned"),
    ],
)
def test_each_sign_of_trouble_is_one_sentence(last: dict[str, float], sentence: str) -> None:
    assert alarms(records(**last), []) == [sentence]


def test_steps_of_every_stage_count() -> None:
    sft = MetricsRecord(0, "sft", 30, 0.0, {"no_verdict": 1.0, "loss": float("inf")})
    rl = MetricsRecord(1, "rl", 4, 0.0, {"no_verdict": 2.0, "loss": float("nan")})
    assert alarms([sft, rl], []) == [
        "3 attempts in 2 training steps got no verdict, through failures of ours",
        "loss was not finite in 2 steps, first in step 30 of sft",
    ]


def test_a_step_that_is_not_finite_does_not_hide_the_others() -> None:
    steps = [MetricsRecord(0, "rl", n, 0.0, {"mismatch": 0.5 if n > 18 else 0.0}) for n in range(1, 20)]
    bad = MetricsRecord(0, "rl", 20, 0.0, {"mismatch": float("nan")})
    assert alarms([*steps, bad], []) == ["at the end of rl, sampler and trainer differ by 0.50 nats a token"]


def test_returns_to_a_checkpoint_are_told_once() -> None:
    steps = [MetricsRecord(1, "rl", n, 0.0, {"roll_backs": 0.0 if n < 5 else 2.0}) for n in range(1, 41)]
    assert alarms(steps, []) == ["rl returned to an earlier checkpoint 2 times"]


def test_what_the_stages_own_rules_said_is_told_once() -> None:
    rule = Rule("low", "reward", Comparison.BELOW, 0.2, cooldown_steps=0, why="it forgets")
    steps = [MetricsRecord(1, "rl", n, 0.0, {"reward": 0.5 if n < 4 else 0.1}) for n in range(1, 7)]
    assert alarms(steps, [], {"rl": [rule]}) == [
        "in rl, reward was 0.1 in step 4, below 0.2: it forgets (and 2 times again)"
    ]
    assert alarms(steps, [], {"other": [rule]}) == []


def test_a_domain_that_fell_is_named() -> None:
    worse = replace(SCORE, pass_at_1=0.3, ci95=(0.25, 0.35))
    assert alarms([], [report("sft", SCORE), report("rl", worse)]) == [
        "words fell from 50.0% to 30.0% between sft and rl"
    ]


def test_a_score_without_skill_is_named() -> None:
    constant = replace(SCORE, best_constant=0.5)
    assert alarms([], [report("base", SCORE), report("rl", constant)]) == [
        "words ends no better than the best constant answer (50.0%)"
    ]
    unknown = replace(SCORE, best_constant=float("nan"))
    assert alarms([], [report("base", SCORE), report("rl", unknown)]) == []


def test_lost_evaluation_attempts_are_told() -> None:
    assert alarms([], [report("base", replace(SCORE, no_verdict=2))]) == [
        "2 attempts of the evaluation after base got no verdict, counted as wrong"
    ]


def test_what_has_no_verdict_and_what_was_kept_out_is_told_by_domain() -> None:
    lost = {"no_verdict": 3.0, "no_verdict/words": 1.0, "no_verdict/sums": 2.0}
    kept_out = {"quarantined": 5.0, "quarantined/sums": 5.0}
    steps = [MetricsRecord(1, "rl", n, 0.0, {**GOOD, **lost, **kept_out, "paused/sums": float(n > 1)}) for n in (1, 2)]
    assert alarms(steps, []) == [
        "6 attempts in 2 training steps got no verdict, through failures of ours (sums 4, words 2)",
        "10 attempts stayed out of the gradient by rule (sums 10): see posttrain audit",
        "sums was paused after step 1 of rl: see posttrain audit",
    ]
