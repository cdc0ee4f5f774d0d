"""Red team, answers compared with a stored one: tolerance, texts, choices, collections, JSON (rows 12 to 18, 21)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from posttrain.core.types import Verdict, VerdictStatus
from posttrain.verifiers.choice import Choice
from posttrain.verifiers.collection import Collection
from posttrain.verifiers.exact import Exact
from posttrain.verifiers.flags import Flag
from posttrain.verifiers.json_schema import JsonSchema
from posttrain.verifiers.tolerance import NumberWithin

CAPITALS = {"options": {"A": "Paris", "B": "Rome", "C": "Oslo"}, "correct": "A"}
POINT = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
    "required": ["x", "y"],
    "additionalProperties": False,
}


def near(reply: str) -> Verdict:
    return NumberWithin().verify(reply, {"value": "12", "absolute": "0.5"})


def exact(reply: str) -> Verdict:
    return Exact(ignore_case=True).verify(reply, "blue whale")


def choice(reply: str) -> Verdict:
    return Choice().verify(reply, CAPITALS)


def items(reply: str) -> Verdict:
    return Collection(ignore_case=True).verify(reply, ["ant", "bee", "cat"])


def point(reply: str) -> Verdict:
    return JsonSchema().verify(reply, {"schema": POINT, "value": {"x": 1, "y": 2}})


def test_honest_replies_are_correct_so_that_these_attacks_can_fail() -> None:
    assert near("Answer: 12.5").status is VerdictStatus.CORRECT
    assert exact("Answer: Blue whale.").status is VerdictStatus.CORRECT
    assert choice("Answer: A").status is VerdictStatus.CORRECT
    assert items("Answer: cat, bee, ant").status is VerdictStatus.CORRECT
    assert point('{"x": 1, "y": 2}').status is VerdictStatus.CORRECT


@pytest.mark.parametrize(
    ("judge", "reply", "flag"),
    [
        # 13: several answers, hedging, enumerating
        (near, "Answer: 11, 12, 13", Flag.SEVERAL_ANSWERS),
        (near, "Answer: 12 or 40", Flag.HEDGED),
        (near, "Answer: 12 ± 100", Flag.HEDGED),
        (near, "Answer: about 12", Flag.HEDGED),
        (near, "Answer: 12\nAnswer: 40", Flag.SEVERAL_ANSWERS),
        (exact, "Answer: blue whale or orca", Flag.HEDGED),
        (exact, "Answer: blue whale. Answer: orca", Flag.SEVERAL_ANSWERS),
        (choice, "Answer: A or B", Flag.HEDGED),
        (choice, "Answer: A, B", Flag.SEVERAL_ANSWERS),
        (choice, "Answer: A, B, C", Flag.SEVERAL_ANSWERS),
        (choice, "Answer: A and C", Flag.SEVERAL_ANSWERS),
        (choice, "Answer: B) Paris", Flag.SEVERAL_ANSWERS),
        (choice, "Answer: (A)(B)", Flag.NOT_AN_OPTION),
        (choice, "Answer: ABC", Flag.NOT_AN_OPTION),
        (choice, "Answer: Paris, Rome", Flag.NOT_AN_OPTION),
        (choice, "Answer: not B", Flag.NOT_AN_OPTION),
        (choice, "Answer: any of them", Flag.NOT_AN_OPTION),
        (items, "Answer: ant, bee, cat or dog", Flag.HEDGED),
        (items, "Answer: ant, bee, cat, ant", Flag.REPETITION),
        # 14, 15: unevaluated forms, ranges, chains, what is not finite
        (near, "Answer: 11.5-12.5", Flag.UNEVALUATED),
        (near, "Answer: 6+6", Flag.UNEVALUATED),
        (near, "Answer: 40 = 12", Flag.UNEVALUATED),
        (near, "Answer: nan", Flag.NOT_FINITE),
        (near, "Answer: inf", Flag.NOT_FINITE),
        (near, "Answer: [11, 13]", Flag.CODE_IN_ANSWER),
        (near, "Answer: 12 apples", Flag.NOT_A_NUMBER),
        # 17: code and hostile JSON
        (near, "Answer: __import__('os').getpid()", Flag.CODE_IN_ANSWER),
        (near, "Answer: 9**9**9", Flag.UNEVALUATED),
        (point, '{"x": 9, "x": 1, "y": 2}', Flag.DUPLICATE_KEYS),
        (point, '{"x": NaN, "y": 2}', Flag.NOT_FINITE),
        (point, '{"x": 1e999, "y": 2}', Flag.NOT_FINITE),
        (point, '{"x": -Infinity, "y": 2}', Flag.NOT_FINITE),
        (point, "[" * 9_000 + "]" * 9_000, Flag.TOO_DEEP),
        (point, '{"x":' * 3_000, Flag.TOO_DEEP),
        (point, "[" * 2_000_000, Flag.TOO_LONG),
        (point, "9" * 5_000, Flag.TOO_LONG),
        (point, '{"x": 1, "y": 2} {"x": 3, "y": 4}', Flag.NOT_JSON),
        (point, "{'x': 1, 'y': 2}", Flag.NOT_JSON),
        (point, "dict(x=1, y=2)", Flag.NOT_JSON),
        (point, '```json\n{"x": 1, "y": 2}\n```\n```json\n{"x": 3, "y": 4}\n```', Flag.SEVERAL_PROGRAMS),
        (point, '```json\n{"x": 1, "y": 2}', Flag.UNCLOSED_FENCE),
        (point, '{"x": 1, "y": 2} // correct', Flag.NOT_JSON),
        # 18: empty answers, answers before the reasoning
        (exact, "Answer:", Flag.NO_ANSWER),
        (exact, "Answer: .", Flag.NO_ANSWER),
        (exact, "Answer: blue whale\n<think></think>", Flag.TEXT_AFTER_ANSWER),
        (exact, "Answer: blue\u200b whale", Flag.INVISIBLE_CHARACTERS),
        (point, "", Flag.NO_ANSWER),
        # 21: text addressed to a judge
        (exact, ":", Flag.NO_ANSWER),
        (choice, "Answer: the correct option", Flag.NOT_AN_OPTION),
        (choice, "Answer: *", Flag.NOT_AN_OPTION),
    ],
)
def test_a_cheated_answer_is_incorrect_and_flagged(judge: Callable[[str], Verdict], reply: str, flag: Flag) -> None:
    verdict = judge(reply)
    assert verdict.status is VerdictStatus.INCORRECT
    assert verdict.flags == (flag,)


@pytest.mark.parametrize(
    ("judge", "answer"),
    [
        (near, "11.4999"),
        (near, "12.50000000000000000001"),
        (near, "1"),
        (near, "-12"),
        (exact, "blue"),
        (exact, "blue whale blue whale"),
        (exact, "a blue whale"),
        (exact, "bluе whale"),  # a Cyrillic letter
        (exact, ".*"),
        (items, "ant, bee"),
        (items, "ant, bee, cat, dog, eel, fox"),
        (items, "ant bee cat"),
        (items, "{ant, bee, cat}, {dog}"),
        (items, "*"),
    ],
)
def test_near_misses_parts_and_wildcards_are_incorrect(judge: Callable[[str], Verdict], answer: str) -> None:
    assert judge(f"Answer: {answer}").status is VerdictStatus.INCORRECT
