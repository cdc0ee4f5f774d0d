"""Decisions, by rule and with reasons."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from tests.gate.gate_parts import drawn, report

from posttrain.core.decision import Audit, DecisionKind, Look
from posttrain.gate.decide import decide, replay
from posttrain.gate.spec import GateSpec

QUICK = {"max_doublings": 0}


def spec(**rules: object) -> GateSpec:
    return TypeAdapter(GateSpec).validate_python({**QUICK, **rules})


def looks(*changes: dict[str, float], n: int = 400) -> list[Look]:
    """The reference, then one candidate for each change of it."""
    pairs = [drawn(change, n=n, seed=1) for change in changes]
    candidates = [Look(report(after, f"rl-{number}")) for number, (_, after) in enumerate(pairs, 1)]
    return [Look(report(pairs[0][0])), *candidates]


def test_what_improved_and_lost_nothing_is_promoted() -> None:
    (decision,) = replay(looks({"a": 0.15, "b": 0.1}), spec())
    assert decision.kind is DecisionKind.PROMOTE
    assert decision.because[0].startswith("2 domains pass, and the total changed by +")
    assert (decision.label, decision.reference) == ("rl-1", "base")


def test_a_guarded_domain_that_regressed_asks_for_a_roll_back_and_is_named() -> None:
    (decision,) = replay(looks({"a": 0.2, "b": -0.3, "c": -0.15}), spec())
    assert decision.kind is DecisionKind.ROLLBACK
    assert decision.culprit == "b"
    assert [sentence.partition(" ")[0] for sentence in decision.because] == ["b", "c"]


def test_a_regression_elsewhere_holds() -> None:
    (decision,) = replay(looks({"a": 0.3, "b": -0.2}), spec(may_not_regress=["a"]))
    assert decision.kind is DecisionKind.HOLD
    assert "b regressed" in decision.because[0]
    assert decision.culprit is None


def test_what_is_inconclusive_fails_safe_and_says_what_could_have_been_seen() -> None:
    (decision,) = replay(looks({"a": 0.1, "b": -0.02}, n=40), spec())
    assert decision.kind is DecisionKind.HOLD
    assert "b" in decision.inconclusive
    assert any("40 tasks detect losses from" in sentence for sentence in decision.because)


def test_a_total_that_did_not_improve_holds_unless_that_is_not_asked_for() -> None:
    history = looks({"a": 0.0, "b": 0.0}, n=600)
    (decision,) = replay(history, spec())
    assert decision.kind is DecisionKind.HOLD
    assert decision.because[0].startswith("the total has not been shown to improve")
    assert replay(history, spec(total_must_improve=False))[0].kind is DecisionKind.PROMOTE


def test_attempts_without_verdicts_hold_and_never_roll_back() -> None:
    before, _ = drawn({"a": 0.0})
    broken = Look(report({"a": [[0.0] * 4] * 128}, "rl", {"a": 400}))
    decision = decide(report(before), broken, spec(), number=1)
    assert decision.kind is DecisionKind.HOLD
    assert decision.because[0] == "a was not measured: more than 2.0% of its attempts have no verdict"
    assert decision.inconclusive == (), "more tasks would not help"


@pytest.mark.parametrize(
    ("audits", "sentence"),
    [
        ({}, "a has no audited precision, and 95.0% is asked for"),
        ({"a": Audit(0.9, 50)}, "the verdicts of a were right in 90.0% of 50 reviewed attempts; 95.0% is asked for"),
        ({"a": Audit(0.99, 5)}, "a has 5 reviewed attempts of the 20 asked for"),
    ],
)
def test_verdicts_that_nobody_checked_or_that_were_wrong_hold(audits: dict[str, Audit], sentence: str) -> None:
    reference, candidate = looks({"a": 0.2})
    rules = spec(min_precision=0.95, min_reviewed=20)
    decision = decide(reference.report, Look(candidate.report, audits), rules, number=1)
    assert decision.kind is DecisionKind.HOLD
    assert sentence in decision.because
    checked = Look(candidate.report, {"a": Audit(0.99, 50)})
    assert decide(reference.report, checked, rules, number=1).kind is DecisionKind.PROMOTE


def test_a_promoted_version_is_the_next_ones_reference_and_others_are_not() -> None:
    history = looks({"a": -0.3}, {"a": 0.2}, {"a": 0.0})
    decisions = replay(history, spec())
    assert [(d.kind.value, d.reference) for d in decisions] == [
        ("rollback", "base"),
        ("promote", "base"),
        ("rollback", "rl-2"),
    ]
    assert [d.look for d in decisions] == [1, 2, 3]


def test_other_rules_decide_otherwise_on_the_same_history() -> None:
    history = looks({"a": 0.3, "b": -0.15})
    assert replay(history, spec())[0].kind is DecisionKind.ROLLBACK
    assert replay(history, spec(margins={"b": 0.4}))[0].kind is DecisionKind.PROMOTE
    assert replay(history, spec()) == replay(history, spec())


def test_small_declines_warn_and_do_not_block() -> None:
    (decision,) = replay(looks({"a": 0.2, "b": -0.07}, n=128), spec(looks=20, alpha=0.001))
    assert decision.kind is DecisionKind.HOLD
    assert decision.warnings[0].startswith("b may have declined")


@settings(deadline=None, max_examples=20)
@given(st.lists(st.sampled_from([-0.4, -0.1, 0.0, 0.3]), min_size=1, max_size=3), st.integers(5, 40))
def test_every_decision_has_a_reason_and_roll_backs_have_a_culprit(changes: list[float], n: int) -> None:
    (decision,) = replay(looks({f"d{i}": change for i, change in enumerate(changes)}, n=n), spec())
    assert decision.because
    assert (decision.culprit is not None) == (decision.kind is DecisionKind.ROLLBACK)
    regressed = [name for name, domain in decision.domains.items() if domain.outcome == "regress"]
    assert bool(regressed) == (decision.kind is DecisionKind.ROLLBACK)


@pytest.mark.parametrize(
    "rules",
    [{"margin": 0.0}, {"alpha": 1.0}, {"looks": 0}, {"margins": {"a": -0.1}}, {"may_not_regres": []}, {"factor": 0}],
)
def test_rules_that_mean_nothing_are_refused(rules: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        spec(**rules)
