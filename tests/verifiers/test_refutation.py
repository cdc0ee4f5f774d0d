"""Proofs from clauses, step by step, and choices of clauses that contradict one another."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.core.types import Verdict, VerdictStatus
from posttrain.verifiers.clauses import ClauseSet, UndecidedError, is_satisfiable
from posttrain.verifiers.flags import Flag
from posttrain.verifiers.refutation import Refutation, read_steps
from posttrain.verifiers.unsat_core import UnsatCore

CORRECT, INCORRECT = VerdictStatus.CORRECT, VerdictStatus.INCORRECT
FOUR = [[1, 2], [1, -2], [-1, 2], [-1, -2]]
RESOLUTION = "5: [1] from 1, 2\n6: [-1] from 3, 4\n7: [] from 5, 6"


def prove(proof: str, clauses: Any = FOUR, **gold: Any) -> Verdict:
    return Refutation().verify(proof, {"clauses": clauses, **gold})


@pytest.mark.parametrize(
    "proof",
    [
        RESOLUTION,
        "First resolve.\n```proof\n5: [2] from 1, 3\n6. [ -2 ] from 2, 4\n7: [] from 5, 6\n```\nDone.",
        "5: [1]\n6: []",
        "5: [1, 1] from 2, 1\n6: [2] from 5, 3\n7: [-2] from 5, 4\n8: [] from 6, 7",
    ],
)
def test_any_refutation_whose_steps_follow_is_correct(proof: str) -> None:
    verdict = prove(proof)
    assert verdict.status is CORRECT
    assert verdict.parts == {"steps_held": 1.0}


@pytest.mark.parametrize(
    ("proof", "held"),
    [
        ("5: [1] from 1, 3\n6: [-1] from 3, 4\n7: [] from 5, 6", 0),
        ("5: [1] from 1, 2\n6: [-1] from 3, 3\n7: [] from 5, 6", 1),
        ("5: [1] from 1, 2\n6: [-1] from 3, 4\n7: [] from 5, 7", 2),
        ("5: [1] from 1, 2\n6: [] from 5, 3", 1),
        ("5: [1] from 1, 2\n7: [-1] from 3, 4\n8: [] from 5, 7", 1),
        ("5: []", 0),
        ("5: [] from 1, 4", 0),
        ("5: [3]", 0),
        ("5: [1] from 0, 1", 0),
    ],
)
def test_the_first_step_that_does_not_follow_is_named(proof: str, held: int) -> None:
    verdict = prove(proof)
    assert verdict.status is INCORRECT
    assert verdict.flags == (Flag.FALSE_STEP,)
    assert verdict.evidence["held"] == held
    assert f"step {held + 1} " in verdict.reason


def test_a_proof_must_end_with_the_empty_clause() -> None:
    assert prove("5: [1] from 1, 2\n6: [-1] from 3, 4").status is INCORRECT


def test_a_task_may_ask_for_resolution_alone() -> None:
    assert prove("5: [1]\n6: []", rule="resolution").status is INCORRECT
    assert prove(RESOLUTION, rule="resolution").status is CORRECT


@pytest.mark.parametrize(
    "gold", [None, {}, {"clauses": []}, {"clauses": [[]]}, {"clauses": [[1], [0]]}, {"clauses": [["p"]]}]
)
def test_clauses_that_nothing_refutes_or_that_need_no_refutation_are_an_error(gold: Any) -> None:
    with pytest.raises(ValueError, match="clause"):
        Refutation().verify(RESOLUTION, gold)


@st.composite
def clause_sets(draw: st.DrawFn) -> list[list[int]]:
    literal = st.integers(1, 4).flatmap(lambda number: st.sampled_from([number, -number]))
    return draw(st.lists(st.lists(literal, min_size=1, max_size=3), min_size=1, max_size=10))


def satisfied_by_some(clauses: list[list[int]]) -> bool:
    for values in itertools.product((False, True), repeat=4):
        if all(any(values[abs(literal) - 1] == (literal > 0) for literal in clause) for clause in clauses):
            return True
    return False


@settings(deadline=None, max_examples=200)
@given(clause_sets())
def test_the_search_agrees_with_trying_everything(clauses: list[list[int]]) -> None:
    assert is_satisfiable(map(frozenset, clauses), 100) is satisfied_by_some(clauses)


@settings(deadline=None, max_examples=200)
@given(clause_sets(), st.lists(st.sampled_from(["[]", "[1]", "[-1]", "[2]", "[1, -2]", "[3]", "[-4]"]), max_size=5))
def test_no_proof_of_a_satisfiable_set_is_accepted(clauses: list[list[int]], claims: list[str]) -> None:
    """Soundness: whatever is claimed, with or without clauses it is said to be from."""
    if not satisfied_by_some(clauses):
        return
    first = len(clauses) + 1
    for sources in ("", f" from 1, {len(clauses)}"):
        proof = "\n".join(f"{first + place}: {claim}{sources}" for place, claim in enumerate([*claims, "[]"]))
        assert prove(proof, clauses).status is INCORRECT


def test_propagation_finds_what_follows_and_contradictions() -> None:
    found = ClauseSet(map(frozenset, [[-1, 2], [-2, 3], [4]]))
    assert found.propagate([1]) == {1, 2, 3, 4}
    assert found.propagate([1, -3]) is None


def test_a_search_without_end_is_given_up() -> None:
    pigeons = [[10 * pigeon + hole for hole in range(1, 8)] for pigeon in range(1, 9)]
    pairs = itertools.combinations(range(1, 9), 2)
    pigeons += [[-(10 * one + hole), -(10 * other + hole)] for one, other in pairs for hole in range(1, 8)]
    with pytest.raises(UndecidedError):
        is_satisfiable(map(frozenset, pigeons), 50)


CORE = {"clauses": [[1, 2], [1], [-1], [2, 3], [-2, 1]], "minimal": True}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [("2, 3", CORRECT), ("3, 2", CORRECT), ("1, 3, 5", CORRECT), ("1, 2, 3", INCORRECT), ("1, 2", INCORRECT)],
)
def test_a_core_contradicts_itself_and_can_spare_nothing(answer: str, expected: VerdictStatus) -> None:
    assert UnsatCore().verify(f"Answer: {answer}", CORE).status is expected


def test_a_core_may_be_bounded_in_size_instead() -> None:
    gold = {"clauses": CORE["clauses"], "max_clauses": 3}
    assert UnsatCore().verify("Answer: 1, 2, 3", gold).status is CORRECT
    assert UnsatCore().verify("Answer: 1, 2, 3, 4", gold).status is INCORRECT


@pytest.mark.parametrize("answer", ["2, 2, 3", "0, 2, 3", "6, 2", "2 3", "x", "-2, 3", "２, 3", "9" * 100])
def test_what_is_no_list_of_clauses_is_refused(answer: str) -> None:
    assert UnsatCore().verify(f"Answer: {answer}", CORE).status is INCORRECT


@pytest.mark.parametrize(
    ("gold", "match"),
    [
        ({"clauses": FOUR}, "all clauses"),
        ({"clauses": FOUR, "max_clauses": 4}, "all clauses"),
        ({"clauses": [[1, 2], [1, -2]], "minimal": True}, "satisfied"),
        ({"clauses": [[1], []], "minimal": True}, "clause"),
        ({"clauses": [[1]], "minimal": True}, "clause"),
    ],
)
def test_a_set_without_a_core_worth_finding_is_an_error(gold: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        UnsatCore().verify("Answer: 1", gold)


def test_steps_are_read_as_they_are_written() -> None:
    steps = read_steps("5: [1, -2] from 1, 2\n6. []")
    assert isinstance(steps, list)
    assert [(step.number, sorted(step.clause), step.parents) for step in steps] == [(5, [-2, 1], (1, 2)), (6, [], None)]
