from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from posttrain.core.rules import Action, Baseline, Comparison, Firing, Rule, RuleEngine, evaluate

NAN, INF = math.nan, math.inf


@dataclass(frozen=True)
class Step:
    step: int
    values: Mapping[str, float] = field(default_factory=dict)


def history(*values: float | None, metric: str = "entropy") -> list[Step]:
    """Steps from 1; None: the step has no such metric."""
    return [Step(step, {} if value is None else {metric: value}) for step, value in enumerate(values, start=1)]


def below(threshold: float = 1.0, **options: Any) -> Rule:
    return Rule("low", "entropy", Comparison.BELOW, threshold, **{"cooldown_steps": 0, **options})


def fired(rule: Rule, steps: Sequence[Step]) -> list[int]:
    return [firing.step for firing in evaluate([rule], steps)]


def test_above_and_below_are_strict() -> None:
    above = Rule("high", "entropy", Comparison.ABOVE, 1.0, cooldown_steps=0)
    assert fired(below(), history(0.9, 1.0, 1.1)) == [1]
    assert fired(above, history(0.9, 1.0, 1.1)) == [3]


def test_what_is_not_finite_is_neither_above_nor_below() -> None:
    above = Rule("high", "entropy", Comparison.ABOVE, 0.0, cooldown_steps=0)
    finite = Rule("finite", "entropy", Comparison.NOT_FINITE, cooldown_steps=0)
    steps = history(NAN, INF, -INF, 1.0)
    assert fired(above, steps) == [4]
    assert fired(below(), steps) == []
    assert fired(finite, steps) == [1, 2, 3]


def test_a_missing_metric_neither_fires_nor_breaks_a_row() -> None:
    assert fired(below(), [Step(1), Step(2, {"other": 0.0})]) == []
    assert fired(below(for_steps=2), history(0.0, None, 0.0)) == [3]


def test_a_measured_step_without_the_condition_breaks_a_row() -> None:
    assert fired(below(for_steps=2), history(0.0, 2.0, 0.0, NAN, 0.0, 0.0)) == [6]


def test_the_first_steps_may_be_left_out() -> None:
    assert fired(below(after_step=2), history(0.0, 0.0, 0.0)) == [3]
    assert fired(below(after_step=2, for_steps=2), history(0.0, 0.0, 0.0, 0.0)) == [4]


def test_a_rule_that_fired_is_silent_while_it_cools_down() -> None:
    assert fired(below(cooldown_steps=2), history(*[0.0] * 7)) == [1, 4, 7]


def test_a_fall_is_measured_against_the_start() -> None:
    rule = below(0.5, relative_to=Baseline.START, window=3)
    assert fired(rule, history(1.0, 9.0, 2.0, 1.1, 0.9)) == [5]  # half of the median of 1, 9 and 2


def test_steps_that_are_left_out_still_make_the_baseline() -> None:
    assert fired(below(0.5, relative_to=Baseline.START, window=2, after_step=3), history(4.0, 4.0, 0.1, 1.0)) == [4]


def test_a_spike_is_measured_against_the_steps_before_it() -> None:
    rule = Rule("spike", "grad_norm", Comparison.ABOVE, 3.0, Baseline.RECENT, window=3)
    assert fired(rule, history(1.0, 50.0, 1.0, 2.0, 10.0, metric="grad_norm")) == [5]  # of 50, 1 and 2
    assert fired(rule, history(1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 5.0, metric="grad_norm")) == []


@pytest.mark.parametrize("start", [(1.0,), (NAN, 1.0), (INF, 1.0), (-1.0, -1.0), (0.0, 0.0)])
def test_a_baseline_that_is_incomplete_or_not_positive_has_no_multiples(start: tuple[float, ...]) -> None:
    for baseline in Baseline:
        rule = below(0.5, relative_to=baseline, window=2)
        assert fired(rule, history(*start, -9.0)[: len(start) + 1]) == []


def test_each_metric_of_a_family_is_watched_by_itself() -> None:
    rule = Rule("pass", "pass/*", Comparison.BELOW, 0.5, for_steps=2)
    steps = [Step(1, {"pass/a": 0.1, "pass/b": 0.9}), Step(2, {"pass/a": 0.1, "pass/b": 0.1, "reward/c": 0.0})]
    assert [firing.metric for firing in evaluate([rule], steps)] == ["pass/a"]


def test_a_name_with_special_characters_is_first_of_all_a_name() -> None:
    rule = Rule("pass", "pass/[a]", Comparison.BELOW, 0.5)
    assert [firing.metric for firing in evaluate([rule], [Step(1, {"pass/[a]": 0.0, "pass/a": 0.0})])] == ["pass/[a]"]


@pytest.mark.parametrize(
    ("rule", "values", "sentence"),
    [
        (
            below(0.1, why="the policy hardly explores"),
            (0.012,),
            "entropy was 0.012 in step 1, below 0.1: the policy hardly explores",
        ),
        (
            below(0.25, relative_to=Baseline.START, window=1, for_steps=2),
            (2.0, 0.3, 0.2),
            "entropy was 0.2 in step 3, below 0.5 (0.25 times its median over the first 1 steps), for 2 steps in a row",
        ),
        (Rule("nan", "entropy", Comparison.NOT_FINITE), (NAN,), "entropy was not finite in step 1"),
    ],
)
def test_a_firing_says_what_was_seen_and_why_it_matters(rule: Rule, values: tuple[float, ...], sentence: str) -> None:
    assert [firing.sentence for firing in evaluate([rule], history(*values))] == [sentence]


def test_a_rule_is_filled_from_plain_data() -> None:
    plain = {"name": "low", "metric": "entropy", "when": "below", "threshold": 0.1, "action": "lower_rate"}
    rule = TypeAdapter(Rule).validate_python({**plain, "relative_to": "start"})
    assert rule == Rule("low", "entropy", Comparison.BELOW, 0.1, Baseline.START, action=Action.LOWER_RATE)
    adapter = TypeAdapter(Rule)
    assert adapter.validate_python(adapter.dump_python(rule, mode="json")) == rule
    with pytest.raises(ValidationError, match="treshold"):
        TypeAdapter(Rule).validate_python({**plain, "treshold": 0.1})


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"name": ""}, "needs a name"),
        ({"threshold": None}, "needs a finite threshold"),
        ({"threshold": NAN}, "needs a finite threshold"),
        ({"when": Comparison.NOT_FINITE}, "takes neither threshold"),
        ({"for_steps": 0}, "at least 1"),
        ({"cooldown_steps": -1}, "at least 0"),
        ({"relative_to": Baseline.RECENT, "window": 4, "for_steps": 3}, "window must be at least 6"),
        ({"action": Action.LOWER_RATE, "factor": 1.0}, "factor must lower"),
        ({"action": Action.ROLL_BACK, "factor": 0.0}, "factor must lower"),
        ({"action": Action.LOWER_PART, "metric": "a/*/format", "factor": 1.0}, "factor must lower a part's weight"),
        ({"action": Action.LOWER_PART}, "a metric that ends with DOMAIN/PART"),
    ],
)
def test_a_rule_that_cannot_mean_anything_is_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Rule(**{"name": "low", "metric": "entropy", "when": Comparison.BELOW, "threshold": 1.0, **options})


numbers = st.one_of(st.sampled_from([0.0, 0.5, 1.0, 2.0, NAN, INF, -INF]), st.floats(-4.0, 4.0))
histories = st.lists(st.fixed_dictionaries({"a": numbers, "b/x": numbers}, optional={"b/y": numbers}), max_size=20).map(
    lambda steps: [Step(number, values) for number, values in enumerate(steps, start=1)]
)


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    when = draw(st.sampled_from(Comparison))
    absolute = when is Comparison.NOT_FINITE
    relative_to = None if absolute else draw(st.sampled_from([None, *Baseline]))
    window = draw(st.integers(1, 6))
    return Rule(
        name="rule",
        metric=draw(st.sampled_from(["a", "b/*", "*", "c"])),
        when=when,
        threshold=None if absolute else draw(st.sampled_from([0.0, 0.5, 1.0, 1.5])),
        relative_to=relative_to,
        window=window,
        for_steps=draw(st.integers(1, max(1, window // 2) if relative_to is Baseline.RECENT else 4)),
        after_step=draw(st.integers(0, 4)),
        cooldown_steps=draw(st.integers(0, 4)),
    )


def seen(firings: Sequence[Firing]) -> list[tuple[int, str, str, int]]:
    """Comparable where a value is NaN."""
    return [(firing.step, firing.metric, firing.sentence, firing.held_steps) for firing in firings]


@settings(deadline=None, max_examples=60)
@given(st.lists(rules(), max_size=3), histories, st.data())
def test_a_firing_does_not_depend_on_later_steps(
    given_rules: list[Rule], steps: list[Step], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(steps)))
    whole = evaluate(given_rules, steps)
    assert seen(evaluate(given_rules, steps[:cut])) == seen([firing for firing in whole if firing.step <= cut])


@settings(deadline=None, max_examples=60)
@given(st.lists(rules(), max_size=3), histories, st.data())
def test_an_engine_that_replayed_its_past_goes_on_as_if_never_stopped(
    given_rules: list[Rule], steps: list[Step], data: st.DataObject
) -> None:
    """The past comes back from disk, where what is not finite has become NaN."""
    cut = data.draw(st.integers(0, len(steps)))
    engine = RuleEngine(given_rules)
    for step in steps[:cut]:
        engine.observe(Step(step.step, {n: v if math.isfinite(v) else NAN for n, v in step.values.items()}))
    resumed = [firing for step in steps[cut:] for firing in engine.observe(step)]
    assert seen(resumed) == seen([firing for firing in evaluate(given_rules, steps) if firing.step > cut])


@settings(deadline=None, max_examples=150)
@given(rules(), histories)
def test_the_engine_is_what_its_options_say(rule: Rule, steps: list[Step]) -> None:
    """Against the definition, written down for one metric at a time, looking back from each step."""
    for metric in ("a", "b/x", "b/y"):
        watched = rule.metric in ("*", metric) or (rule.metric == "b/*" and metric.startswith("b/"))
        values = [(step.step, step.values[metric]) for step in steps if metric in step.values] if watched else []
        expected: list[int] = []
        for place, (step, _) in enumerate(values):
            last = [place - back for back in range(rule.for_steps)]
            row = all(at >= 0 and values[at][0] > rule.after_step and _held(rule, values, at) for at in last)
            if row and all(step - earlier > rule.cooldown_steps for earlier in expected):
                expected.append(step)
        assert [firing.step for firing in evaluate([rule], steps) if firing.metric == metric] == expected


def _held(rule: Rule, values: list[tuple[int, float]], at: int) -> bool:
    value = values[at][1]
    if rule.when is Comparison.NOT_FINITE:
        return not math.isfinite(value)
    assert rule.threshold is not None
    limit = rule.threshold
    if rule.relative_to is not None:
        before = [value for _, value in values[:at] if math.isfinite(value)]
        if len(before) < rule.window:
            return False
        median = statistics.median(
            before[: rule.window] if rule.relative_to is Baseline.START else before[-rule.window :]
        )
        if median <= 0:
            return False
        limit *= median
    return math.isfinite(value) and (value > limit if rule.when is Comparison.ABOVE else value < limit)


@settings(deadline=None, max_examples=30)
@given(st.lists(rules(), max_size=3), histories)
def test_evaluation_changes_nothing_it_is_given(given_rules: list[Rule], steps: list[Step]) -> None:
    before = [dict(step.values) for step in steps]
    assert seen(evaluate(given_rules, steps)) == seen(evaluate(given_rules, steps))
    assert repr([dict(step.values) for step in steps]) == repr(before)


def test_holding_names_rules_before_they_fire() -> None:
    engine = RuleEngine([below(for_steps=3)])
    holding = []
    for step in history(0.0, 0.0, None, 2.0):
        assert engine.observe(step) == []
        holding.append(len(engine.holding()))
    assert holding == [1, 1, 1, 0]
