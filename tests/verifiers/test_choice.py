"""One of the task's options."""

from __future__ import annotations

from typing import Any

import pytest

from posttrain.core.types import VerdictStatus
from posttrain.verifiers.choice import Choice
from posttrain.verifiers.flags import Flag

GOLD = {"options": {"A": "Paris", "B": "Rome", "C": "Paris", "D": "New York"}, "correct": "B"}


def verdict(answer: str, gold: Any = GOLD) -> Any:
    return Choice().verify(f"Answer: {answer}", gold)


@pytest.mark.parametrize(
    "answer", ["B", "b", "(B)", "B)", "B.", "B:", "B) Rome", "(B) rome", "B: Rome.", "Rome", "ROME"]
)
def test_the_letter_the_content_or_both_name_the_option(answer: str) -> None:
    assert verdict(answer).status is VerdictStatus.CORRECT
    assert verdict(answer).answer == "B"


@pytest.mark.parametrize(
    ("answer", "flag"),
    [
        ("B) Paris", Flag.SEVERAL_ANSWERS),
        ("A) Rome", Flag.SEVERAL_ANSWERS),
        ("A, B", Flag.SEVERAL_ANSWERS),
        ("A and B", Flag.SEVERAL_ANSWERS),
        ("(A)/(B)", Flag.SEVERAL_ANSWERS),
        ("Paris", Flag.SEVERAL_ANSWERS),
        ("E", Flag.NOT_AN_OPTION),
        ("B) Roma", Flag.NOT_AN_OPTION),
        ("BB", Flag.NOT_AN_OPTION),
        ("option B", Flag.NOT_AN_OPTION),
        ("Rome, Paris", Flag.NOT_AN_OPTION),
        ("all of the above", Flag.NOT_AN_OPTION),
        ("A B C D", Flag.NOT_AN_OPTION),
    ],
)
def test_what_does_not_name_one_option_is_refused_by_name(answer: str, flag: Flag) -> None:
    assert verdict(answer).status is VerdictStatus.INCORRECT
    assert verdict(answer).flags == (flag,)


def test_another_option_is_incorrect() -> None:
    assert verdict("D").status is VerdictStatus.INCORRECT
    assert verdict("New York").answer == "D"


def test_options_may_be_numbered_and_a_letter_is_never_content() -> None:
    gold = {"options": {"1": "2", "2": "1"}, "correct": "1"}
    assert verdict("1", gold).status is VerdictStatus.CORRECT
    assert verdict("2", gold).status is VerdictStatus.INCORRECT
    assert verdict("1) 2", gold).status is VerdictStatus.CORRECT


@pytest.mark.parametrize(
    "gold",
    [
        None,
        {"options": {"A": "x"}, "correct": "A"},
        {"options": {"A": "x", "B": "y"}, "correct": "C"},
        {"options": {"A": "x", "B": "X "}, "correct": "A"},
        {"options": {"A": "x", "B": ""}, "correct": "A"},
        {"options": {"a": "x", "b": "y"}, "correct": "a"},
        {"options": {"A": "x", "B": "y"}, "correct": "A", "hint": "x"},
    ],
)
def test_options_that_cannot_be_told_apart_are_an_error(gold: Any) -> None:
    with pytest.raises(ValueError, match="choice"):
        verdict("A", gold)
