"""Three outcomes, from pairs."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tests.gate.gate_parts import drawn, report

from posttrain.core.decision import Outcome
from posttrain.gate.judge import judge, paired
from posttrain.gate.spec import GateSpec
from posttrain.gate.statistics import paired_gain

SPEC = GateSpec(max_doublings=0)


def outcomes(changes: dict[str, float], spec: GateSpec = SPEC, look: int = 1, **size: int) -> dict[str, Outcome]:
    before, after = drawn(changes, **size)
    return {name: of.outcome for name, of in judge(report(before), report(after, "rl"), spec, look).items()}


def test_what_stayed_passes_what_fell_regresses_and_what_cannot_be_told_is_inconclusive() -> None:
    changes = {"stayed": 0.0, "fell": -0.3, "rose": 0.2}
    assert outcomes(changes, n=400) == {"stayed": "pass", "fell": "regress", "rose": "pass"}
    assert outcomes({"small": -0.05}, n=12) == {"small": "inconclusive"}


def test_a_decline_within_the_margin_is_tolerated() -> None:
    spec = GateSpec(max_doublings=0, margins={"words": 0.2})
    assert outcomes({"words": -0.1}, n=1000) == {"words": "regress"}
    assert outcomes({"words": -0.1}, spec, n=1000) == {"words": "pass"}


def test_equal_reports_pass_without_being_certain() -> None:
    before, _ = drawn({"a": 0.0})
    (domain,) = judge(report(before), report(before, "rl"), SPEC, 1).values()
    assert domain.outcome is Outcome.PASS
    assert domain.delta == 0.0
    assert domain.ci95[0] < 0.0 < domain.ci95[1]
    assert domain.anytime_p == domain.decline_p == 1.0


def test_delta_and_interval_are_the_paired_ones() -> None:
    before, after = drawn({"a": -0.1, "b": 0.1})
    judged = judge(report(before), report(after, "rl"), SPEC, 1)
    gain = paired_gain(report(before), report(after, "rl"))
    for name, domain in judged.items():
        assert domain.delta == pytest.approx(gain.domains[name].delta)
        assert domain.ci95 == pytest.approx(gain.domains[name].ci95, abs=0.01)
        assert domain.n == gain.domains[name].n


def test_attempts_without_a_verdict_are_no_regression() -> None:
    before, _ = drawn({"a": 0.0, "b": 0.0})
    broken = {"a": [[0.0] * 4] * 128, "b": before["b"]}
    judged = judge(report(before), report(broken, "rl", {"a": 200}), SPEC, 1)
    assert judged["a"].outcome is Outcome.INCONCLUSIVE
    assert judged["a"].unmeasured
    assert judged["b"].outcome is Outcome.PASS
    assert judge(report(before), report(broken, "rl"), SPEC, 1)["a"].outcome is Outcome.REGRESS


def test_more_domains_and_later_looks_ask_for_more_evidence() -> None:
    alone = outcomes({"fell": -0.14}, GateSpec(max_doublings=0, looks=1))
    assert alone == {"fell": "regress"}
    among = outcomes({"fell": -0.14, **{f"other{i}": 0.0 for i in range(40)}}, GateSpec(max_doublings=0, looks=1))
    assert among["fell"] == "inconclusive"
    assert outcomes({"fell": -0.14}, GateSpec(max_doublings=0, looks=1), look=30) == {"fell": "inconclusive"}


def test_a_family_lends_its_certainty_to_a_small_domain_and_hides_no_regression() -> None:
    changes = {f"code{i}": 0.0 for i in range(30)}
    rng = np.random.default_rng(1)
    before, after = drawn(changes, n=100)
    small = (rng.random((20, 4)) < 0.5).astype(float)
    before, after = {**before, "code_small": small.tolist()}, {**after, "code_small": small[:, ::-1].tolist()}
    small_after = small.copy()
    small_after[0] = 1.0 - small_after[0]
    after["code_small"] = small_after.tolist()
    family = GateSpec(max_doublings=0, families={"code": ["code*"]})
    alone, lent = (judge(report(before), report(after, "rl"), spec, 1)["code_small"] for spec in (SPEC, family))
    assert alone.outcome is Outcome.INCONCLUSIVE
    assert lent.outcome is Outcome.PASS
    assert abs(lent.shrunk) <= abs(lent.delta)
    fallen = {**after, "code_small": np.zeros((20, 4)).tolist()}
    assert judge(report(before), report(fallen, "rl"), family, 1)["code_small"].outcome is not Outcome.PASS


def test_a_candidate_may_have_been_measured_on_the_first_of_the_references_tasks() -> None:
    before, after = drawn({"a": 0.0}, n=40)
    first = {"a": after["a"][:10]}
    assert len(paired(report(before), report(first, "rl"))["a"].differences) == 10
    with pytest.raises(ValueError, match="30 tasks of rl were not measured"):
        paired(report({"a": before["a"][:10]}), report(after, "rl"))
    with pytest.raises(ValueError, match="report rl lacks domain b"):
        paired(report({**before, "b": before["a"]}), report(after, "rl"))


def test_the_detectable_loss_does_not_depend_on_which_report_comes_first() -> None:
    before, after = drawn({"a": -0.2})
    one, other = report(before), report(after, "rl")
    there, back = judge(one, other, SPEC, 1)["a"], judge(other, one, SPEC, 1)["a"]
    assert there.detectable == pytest.approx(back.detectable)
    assert dataclasses.replace(there, delta=-there.delta).delta == pytest.approx(back.delta)
