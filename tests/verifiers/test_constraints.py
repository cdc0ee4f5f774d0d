"""Puzzles checked against their constraints."""

from __future__ import annotations

import itertools
import json
import typing
from typing import Any

import pytest

from posttrain.core.types import VerdictStatus
from posttrain.verifiers.constraints import Constraints
from posttrain.verifiers.flags import Flag
from posttrain.verifiers.puzzle import Constraint, read_puzzle

CORRECT, INCORRECT = VerdictStatus.CORRECT, VerdictStatus.INCORRECT
COLOURS = ["red", "green", "blue"]


def status(reply: Any, puzzle: Any) -> VerdictStatus:
    return Constraints().verify(reply if isinstance(reply, str) else json.dumps(reply), puzzle).status


def holds(constraint: dict[str, Any], **given: Any) -> bool:
    """Whether one constraint holds, in a puzzle of numbers and truths that rules something else out."""
    groups = [
        {"names": [name for name in given if isinstance(given[name], bool) is truth], "domain": domain}
        for truth, domain in ((True, [True, False]), (False, list(range(-9, 13))))
    ]
    extra = {"names": ["one", "two"], "domain": ["x", "y"]}
    puzzle = {
        "variables": [extra, *(group for group in groups if group["names"])],
        "constraints": [constraint, {"kind": "in", "of": ["one"], "values": ["x"]}],
    }
    return read_puzzle(puzzle).broken({"one": "x", "two": "x", **given}) == []


NOT_1: dict[str, Any] = {"kind": "not", "of": [{"kind": "in", "of": ["a"], "values": [1]}]}
IS_1: dict[str, Any] = {"kind": "in", "of": ["a"], "values": [1]}
IS_2: dict[str, Any] = {"kind": "in", "of": ["b"], "values": [2]}
CASES: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ({"kind": "all_different", "of": ["a", "b", "c"]}, {"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 2, "c": 1}),
    ({"kind": "all_equal", "of": ["a", "b"]}, {"a": 1, "b": 1}, {"a": 1, "b": 2}),
    ({"kind": "in", "of": ["a"], "values": [1, 2]}, {"a": 2}, {"a": 3}),
    ({"kind": "edges_differ", "edges": [["a", "b"], ["b", "c"]]}, {"a": 1, "b": 2, "c": 1}, {"a": 1, "b": 2, "c": 2}),
    ({"kind": "rows", "of": ["a", "b"], "rows": [[1, 2], [2, 1]]}, {"a": 2, "b": 1}, {"a": 1, "b": 1}),
    ({"kind": "count", "of": ["a", "b"], "value": 1, "is": "=", "number": 1}, {"a": 1, "b": 2}, {"a": 1, "b": 1}),
    ({"kind": "clause", "literals": ["p", "-q"]}, {"p": False, "q": False}, {"p": False, "q": True}),
    ({"kind": "linear", "terms": [[2, "a"], [-1, "b"]], "is": ">=", "number": 3}, {"a": 3, "b": 3}, {"a": 3, "b": 4}),
    ({"kind": "product", "of": ["a", "b"], "is": "=", "number": 6}, {"a": 2, "b": 3}, {"a": 1, "b": 5}),
    ({"kind": "distance", "of": ["a", "b"], "is": "=", "number": 1}, {"a": 4, "b": 3}, {"a": 4, "b": 4}),
    ({"kind": "quotient", "of": ["a", "b"], "number": 3}, {"a": 2, "b": 6}, {"a": 0, "b": 0}),
    ({"kind": "increasing", "of": ["a", "b"]}, {"a": 1, "b": 2}, {"a": 2, "b": 2}),
    ({"kind": "increasing", "of": ["a", "b"], "weakly": True}, {"a": 2, "b": 2}, {"a": 3, "b": 2}),
    ({"kind": "between", "of": ["a", "b", "c"]}, {"a": 2, "b": 3, "c": 1}, {"a": 3, "b": 3, "c": 1}),
    (
        {"kind": "cumulative", "tasks": [["a", 3, 1], ["b", 2, 1], ["c", 2, 2]], "capacity": 2},
        {"a": 0, "b": 1, "c": 3},
        {"a": 0, "b": 1, "c": 2},
    ),
    (NOT_1, {"a": 2}, {"a": 1}),
    ({"kind": "holding", "of": [IS_1, IS_2], "is": "=", "number": 1}, {"a": 1, "b": 1}, {"a": 1, "b": 2}),
    ({"kind": "if", "of": [IS_1, IS_2]}, {"a": 2, "b": 1}, {"a": 1, "b": 1}),
    ({"kind": "iff", "of": [IS_1, IS_2]}, {"a": 2, "b": 1}, {"a": 2, "b": 2}),
]


@pytest.mark.parametrize(("constraint", "kept", "broken"), CASES)
def test_a_constraint_holds_of_one_assignment_and_not_of_the_other(
    constraint: dict[str, Any], kept: dict[str, Any], broken: dict[str, Any]
) -> None:
    assert holds(constraint, **kept)
    assert not holds(constraint, **broken)


def test_every_constraint_of_the_language_is_tested_here() -> None:
    union, _ = typing.get_args(Constraint)
    known = {typing.get_args(typing.get_type_hints(record)["kind"])[0] for record in typing.get_args(union)}
    assert known == {constraint["kind"] for constraint, *_ in CASES}


def sudoku() -> dict[str, Any]:
    """Four by four, one number given."""
    cells = [[f"r{row}c{column}" for column in range(4)] for row in range(4)]
    boxes = [[cells[2 * (b // 2) + r][2 * (b % 2) + c] for r in (0, 1) for c in (0, 1)] for b in range(4)]
    lines = [*cells, *map(list, zip(*cells, strict=True)), *boxes]
    return {
        "variables": [{"names": list(itertools.chain(*cells)), "from": 1, "to": 4}],
        "constraints": [
            *({"kind": "all_different", "of": line} for line in lines),
            {"kind": "in", "of": ["r0c0"], "values": [1]},
        ],
    }


def test_any_grid_that_fits_solves_a_sudoku() -> None:
    assert status([[1, 2, 3, 4], [3, 4, 1, 2], [2, 1, 4, 3], [4, 3, 2, 1]], sudoku()) is CORRECT
    assert status([[1, 4, 3, 2], [3, 2, 1, 4], [2, 3, 4, 1], [4, 1, 2, 3]], sudoku()) is CORRECT
    assert status([1, 2, 3, 4, 3, 4, 1, 2, 2, 1, 4, 3, 4, 3, 2, 1], sudoku()) is CORRECT
    assert status([[1, 2, 3, 4], [3, 4, 1, 2], [2, 1, 4, 3], [4, 3, 1, 2]], sudoku()) is INCORRECT
    assert status([[2, 1, 3, 4], [3, 4, 1, 2], [1, 2, 4, 3], [4, 3, 2, 1]], sudoku()) is INCORRECT
    assert status([[1, 2, 3, 4]] * 3, sudoku()) is INCORRECT


MAP = {
    "variables": [{"names": ["N", "S", "E"], "domain": COLOURS}],
    "constraints": [{"kind": "edges_differ", "edges": [["N", "S"], ["S", "E"], ["N", "E"]]}],
    "solution": {"N": "red", "S": "green", "E": "blue"},
}


@pytest.mark.parametrize("colours", list(itertools.product(COLOURS, repeat=3)))
def test_every_colouring_is_judged_by_its_neighbours_in_both_forms(colours: tuple[str, ...]) -> None:
    expected = CORRECT if len(set(colours)) == 3 else INCORRECT
    given = dict(zip("NSE", colours, strict=True))
    assert status(given, MAP) is expected
    assert status("So. Answer: " + ", ".join(f"{name}={colour}" for name, colour in given.items()), MAP) is expected


KNIGHTS = {
    "variables": [{"names": ["A", "B"], "domain": [True, False]}],
    "constraints": [  # A says: we are both knaves.
        {
            "kind": "iff",
            "of": [
                {"kind": "in", "of": ["A"], "values": [True]},
                {"kind": "count", "of": ["A", "B"], "value": False, "is": "=", "number": 2},
            ],
        }
    ],
}


def test_a_knight_tells_the_truth() -> None:
    assert status({"A": False, "B": True}, KNIGHTS) is CORRECT
    assert status("Answer: A=false, B=true", KNIGHTS) is CORRECT
    for a, b in ((True, True), (True, False), (False, False)):
        assert status({"A": a, "B": b}, KNIGHTS) is INCORRECT


@pytest.mark.parametrize(
    ("reply", "flag"),
    [
        ({"N": "red", "S": "green"}, Flag.NOT_AN_OPTION),
        ({"N": "red", "S": "green", "E": "blue", "W": "red"}, Flag.NOT_AN_OPTION),
        ({"N": "red", "S": "green", "E": "violet"}, Flag.NOT_AN_OPTION),
        ({"N": "red", "S": "green", "E": ["blue"]}, Flag.NOT_AN_OPTION),
        ({"N": None, "S": 1, "E": True}, Flag.NOT_AN_OPTION),
        ("Answer: N=red, S=green, E=blue, E=red", Flag.SEVERAL_ANSWERS),
        ("Answer: N=red, S=green, E=", Flag.NOT_AN_OPTION),
        ("Answer: red, green, blue", Flag.NOT_AN_OPTION),
        ('{"N": "red", "N": "blue", "S": "green", "E": "blue"}', Flag.DUPLICATE_KEYS),
        ("```json\n{}\n```\n```json\n{}\n```", Flag.SEVERAL_PROGRAMS),
        ("red", Flag.NO_ANSWER),
    ],
)
def test_what_is_no_assignment_is_refused_by_name(reply: Any, flag: Flag) -> None:
    text = reply if isinstance(reply, str) else json.dumps(reply)
    assert Constraints().verify(text, MAP).flags == (flag,)


def test_truth_is_no_number_and_the_other_way_round() -> None:
    assert status({"A": 0, "B": 1}, KNIGHTS) is INCORRECT
    number = {
        "variables": [{"names": ["n"], "from": 0, "to": 1}],
        "constraints": [{"kind": "in", "of": ["n"], "values": [1]}],
    }
    assert status({"n": 1}, number) is CORRECT
    assert status({"n": True}, number) is INCORRECT
    assert status({"n": 1.0}, number) is INCORRECT


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"constraints": []}, "at least 1"),
        ({"constraints": [{"kind": "different", "of": ["N", "S"]}]}, "different"),
        ({"constraints": [{"kind": "all_different", "of": ["N"]}]}, "at least 2"),
        ({"constraints": [{"kind": "all_different", "of": ["N", "W"]}]}, "no variable 'W'"),
        ({"constraints": [{"kind": "increasing", "of": ["N", "S"]}]}, "number"),
        ({"constraints": [{"kind": "not", "of": [{"kind": "between", "of": ["N", "S", "E"]}]}]}, "number"),
        ({"constraints": [{"kind": "clause", "literals": ["N"]}]}, "clause"),
        ({"constraints": [{"kind": "rows", "of": ["N", "S"], "rows": [["red"]]}]}, "row"),
        ({"constraints": [{"kind": "in", "of": ["N"], "values": COLOURS}]}, "hardly anything"),
        ({"solution": {"N": "red", "S": "red", "E": "blue"}}, "own solution"),
        ({"solution": {"N": "red"}}, "own solution"),
        ({"solution": {"N": "red", "S": "green", "E": "violet"}}, "own solution"),
        ({"variables": [{"names": ["N", "S", "N", "E"], "domain": COLOURS}]}, "twice"),
        ({"variables": [{"names": ["N", "S", "E"], "domain": ["red"]}]}, "two values"),
        ({"variables": [{"names": ["N", "S", "E"], "domain": COLOURS, "from": 1, "to": 3}]}, "either"),
        ({"variables": [{"names": ["N", "S", "E"], "from": 1}]}, "either"),
        ({"hint": "red"}, "hint"),
    ],
)
def test_a_puzzle_that_cannot_judge_is_an_error(changes: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        status({}, MAP | changes)


def test_a_huge_range_costs_nothing() -> None:
    puzzle = {
        "variables": [{"names": ["a", "b"], "from": -(10**9), "to": 10**9}],
        "constraints": [{"kind": "linear", "terms": [[3, "a"], [1, "b"]], "is": "=", "number": 7}],
    }
    assert status("Answer: a=1000000, b=-2999993", puzzle) is CORRECT
    assert status("Answer: a=1000000, b=-2999992", puzzle) is INCORRECT
