"""Several items."""

from __future__ import annotations

from typing import Any

import pytest

from posttrain.core.types import VerdictStatus
from posttrain.verifiers.collection import Collection
from posttrain.verifiers.flags import Flag

CORRECT, INCORRECT = VerdictStatus.CORRECT, VerdictStatus.INCORRECT


def status(answer: str, gold: Any, **options: Any) -> VerdictStatus:
    return Collection(**options).verify(f"Answer: {answer}", gold).status


@pytest.mark.parametrize("answer", ["3, 1, 2", "{1, 2, 3}", "[3,2,1]", "(1, 2.0, 03)"])
def test_a_set_of_numbers_is_the_same_in_every_order_and_notation(answer: str) -> None:
    assert status(answer, [1, 2, 3]) is CORRECT


@pytest.mark.parametrize(
    "answer", ["1, 2", "1, 2, 3, 4", "1, 2, 2, 3", "1 2 3", "1, 2, 3,", "{1, 2, 3", "1, 2, 1+2", "*"]
)
def test_other_items_are_incorrect(answer: str) -> None:
    assert status(answer, [1, 2, 3]) is INCORRECT


def test_a_list_counts_order_and_repetition() -> None:
    assert status("b, a, b", ["b", "a", "b"], ordered=True) is CORRECT
    assert status("a, b, b", ["b", "a", "b"], ordered=True) is INCORRECT
    assert status("b, a", ["b", "a", "b"], ordered=True) is INCORRECT


def test_what_repetition_means_in_a_set_is_an_option() -> None:
    assert Collection().verify("Answer: a, b, a", ["a", "b"]).flags == (Flag.REPETITION,)
    assert status("a, b, a", ["a", "b"], duplicates="ignore") is CORRECT
    assert status("a, b, a", ["a", "b"], duplicates="count") is INCORRECT
    assert status("a, b, a", ["a", "a", "b"], duplicates="count") is CORRECT
    assert status("a, b, b", ["a", "a", "b"], duplicates="count") is INCORRECT


def test_capitals_count_unless_the_option_says_otherwise() -> None:
    assert status("ann, Bob", ["Ann", "Bob"]) is INCORRECT
    assert status("ann, Bob", ["Ann", "Bob"], ignore_case=True) is CORRECT


def test_numbers_among_words_are_words() -> None:
    assert status("2, x", ["x", 2]) is CORRECT
    assert status("2.0, x", ["x", 2]) is INCORRECT


@pytest.mark.parametrize("gold", [None, [], "a", [""], ["a, b"], [True], [1.5], [["a"]], ["a", "a"], [1, "1.0"]])
def test_items_that_no_reply_could_give_are_an_error(gold: Any) -> None:
    with pytest.raises(ValueError, match="item"):
        Collection().verify("Answer: a", gold)
