"""Words in an order as answers."""

from __future__ import annotations

import pytest

from posttrain.core.types import VerdictStatus
from posttrain.verifiers.sequence import read_sequence, verify_sequence

WORDS = ["apple", "fig", "pear"]


@pytest.mark.parametrize("text", ["apple, fig, pear", "apple,fig,pear", "apple ,  fig, pear."])
def test_the_right_order_is_correct_and_spaces_do_not_matter(text: str) -> None:
    verdict = verify_sequence(f"Answer: {text}", WORDS)
    assert verdict.status is VerdictStatus.CORRECT
    assert verdict.answer == "apple, fig, pear"


@pytest.mark.parametrize(
    "text",
    [
        "fig, apple, pear",
        "apple, fig",
        "apple, fig, pear, plum",
        "apple, fig, pear, pear",
        "apple, , fig, pear",
        "Apple, fig, pear",
        "apple fig pear",
        "apple; fig; pear",
        "[apple, fig, pear]",
        "apple, fig and pear",
    ],
)
def test_any_other_list_is_incorrect(text: str) -> None:
    assert verify_sequence(f"Answer: {text}", WORDS).status is VerdictStatus.INCORRECT


def test_another_order_and_other_words_have_different_reasons() -> None:
    assert "order" in verify_sequence("Answer: pear, fig, apple", WORDS).reason
    assert "other words" in verify_sequence("Answer: plum", WORDS).reason


def test_an_empty_place_is_kept() -> None:
    assert read_sequence("Answer: a,, b") == ("a", "", "b")
