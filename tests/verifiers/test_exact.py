"""One text, exactly."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.core.types import VerdictStatus
from posttrain.verifiers.exact import Exact
from posttrain.verifiers.flags import Flag
from posttrain.verifiers.text_form import has_invisible, normal_text, without_invisible

CORRECT, INCORRECT = VerdictStatus.CORRECT, VerdictStatus.INCORRECT


def status(answer: str, gold: Any, **options: Any) -> VerdictStatus:
    return Exact(**options).verify(f"Answer: {answer}", gold).status


def test_white_space_and_composition_do_not_count_and_capitals_do() -> None:
    assert status("New \t York", "New York") is CORRECT
    assert status("cafe\u0301", "caf\u00e9") is CORRECT
    assert status("new york", "New York") is INCORRECT
    assert status("NewYork", "New York") is INCORRECT


def test_case_and_compatibility_forms_are_options() -> None:
    assert status("STRASSE", "straße", ignore_case=True) is CORRECT
    assert status("ｆｉｇ", "fig") is INCORRECT
    assert status("ｆｉｇ", "fig", unicode="NFKC") is CORRECT


def test_any_of_several_texts_is_right() -> None:
    assert status("USA", ["USA", "United States"]) is CORRECT
    assert status("United States", ["USA", "United States"]) is CORRECT
    assert status("United", ["USA", "United States"]) is INCORRECT


def test_characters_that_nobody_sees_are_refused_by_name() -> None:
    for hidden in ("fi\u200bg", "f\u00adig", "fig\ufe0f", "\u3164fig", "fig\u202e"):
        assert Exact().verify(f"Answer: {hidden}", "fig").flags == (Flag.INVISIBLE_CHARACTERS,)


@pytest.mark.parametrize("gold", [None, 5, "", [], [""], ["a", 5], "this or that", "two\nlines", {"text": "a"}])
def test_a_text_that_no_reply_could_give_is_an_error(gold: Any) -> None:
    with pytest.raises(ValueError, match="text"):
        Exact().verify("Answer: a", gold)


@settings(deadline=None, max_examples=200)
@given(st.text(max_size=20), st.booleans())
def test_the_normal_form_of_a_normal_form_is_itself(text: str, ignore_case: bool) -> None:
    once = normal_text(text, ignore_case=ignore_case)
    assert normal_text(once, ignore_case=ignore_case) == once
    assert not has_invisible(without_invisible(text))
