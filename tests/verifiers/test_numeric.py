"""Numbers as answers."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.core.types import VerdictStatus
from posttrain.verifiers.final_answer import Refused
from posttrain.verifiers.flags import Flag
from posttrain.verifiers.numeric import normal_form, read_number, verify_number


@pytest.mark.parametrize("text", ["42", "042", "42.0", "42.000"])
def test_equal_values_are_equal_in_every_notation_and_have_one_answer_text(text: str) -> None:
    verdict = verify_number(f"Answer: {text}", 42)
    assert verdict.status is VerdictStatus.CORRECT
    assert verdict.answer == "42"


@pytest.mark.parametrize(
    ("text", "flag"),
    [
        ("nan", Flag.NOT_FINITE),
        ("-inf", Flag.NOT_FINITE),
        ("5+7", Flag.UNEVALUATED),
        ("5 - 7", Flag.UNEVALUATED),
        ("5+7=12", Flag.UNEVALUATED),
        ("12=12", Flag.UNEVALUATED),
        ("1e3", Flag.UNEVALUATED),
        ("9**9**9", Flag.UNEVALUATED),
        ("12/1", Flag.UNEVALUATED),
        ("int('12')", Flag.CODE_IN_ANSWER),
        ("$12$", Flag.CODE_IN_ANSWER),
        ("1_2", Flag.CODE_IN_ANSWER),
        ("5, 7", Flag.SEVERAL_ANSWERS),
        ("1,234", Flag.SEVERAL_ANSWERS),
        ("twelve", Flag.NOT_A_NUMBER),
        ("12 apples", Flag.NOT_A_NUMBER),
        ("+12", Flag.UNEVALUATED),
        ("١٢", Flag.NOT_A_NUMBER),
        ("12.", Flag.NOT_A_NUMBER),
        (".5", Flag.NOT_A_NUMBER),
        ("9" * 41, Flag.TOO_LONG),
    ],
)
def test_what_is_not_one_plain_number_is_refused_by_name(text: str, flag: Flag) -> None:
    refused = read_number(text)
    assert isinstance(refused, Refused)
    assert refused.flags == (flag,)


@pytest.mark.parametrize("near", ["41.9999999999999", "42.0000000000001", "-42", "4", "420"])
def test_near_misses_and_prefixes_are_incorrect(near: str) -> None:
    assert verify_number(f"Answer: {near}", 42).status is VerdictStatus.INCORRECT


def test_decimals_are_compared_exactly() -> None:
    assert verify_number("Answer: 0.30", "0.3").status is VerdictStatus.CORRECT
    assert verify_number("Answer: 0.30000000000000004", "0.3").status is VerdictStatus.INCORRECT


@pytest.mark.parametrize("expected", [True, 0.5, "5+7", "", "nan", None])
def test_a_task_without_a_plain_expected_number_is_an_error_not_a_wrong_answer(expected: object) -> None:
    with pytest.raises(ValueError, match="expected answer"):
        verify_number("Answer: 1", expected)  # type: ignore[arg-type]


@settings(deadline=None, max_examples=200)
@given(st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**12), max_value=10**12))
def test_the_normal_form_is_read_back_as_the_same_number(number: Decimal) -> None:
    text = normal_form(number)
    assert read_number(text) == number
    assert normal_form(Decimal(text)) == text


@settings(deadline=None, max_examples=200)
@given(st.text(max_size=60))
def test_no_text_makes_the_verifier_raise(text: str) -> None:
    assert verify_number(f"Answer: {text}", 10**30).status is VerdictStatus.INCORRECT
