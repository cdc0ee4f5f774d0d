"""Reasoning steps that are checked, beside the outcome."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.core import registry
from posttrain.core.errors import ConfigError
from posttrain.core.types import VerdictStatus
from posttrain.verifiers.arithmetic_text import statements
from posttrain.verifiers.flags import Flag
from posttrain.verifiers.steps import StepReport, Steps, check_steps


@pytest.mark.parametrize(
    "text",
    [
        "12 * 3 = 36",
        "So 12 × 3 = 36 apples.",
        "12 x 3 = 36",
        "$12 \\times 3 = 36$",
        "\\frac{1}{2} + \\frac{1}{4} = \\frac{3}{4}",
        "1/2 + 1/3 = 5/6",
        "20% of 50 = 10",
        "15% = 0.15",
        "1,000 + 2,500 = 3,500",
        "2^10 = 1024",
        "2 ** 10 = 1024",
        "-2^2 = -4",
        "2^3^2 = 512",
        "2(3 + 4) = 14",
        "(2 + 3) * (4 - 1) = 15",
        "10 - 3 - 2 = 5",
        "100 / 5 / 2 = 10",
        "2 + 3 * 4 = 14",
        "7 − 10 = −3",
        "$5 + $3 = $8",
        "10/3 ≈ 3.33",
        "3 < 5",
        "3/4 >= 0.75",
        "0.1 + 0.2 != 0.30000000000000004",
        "- 5 + 3 = 8",
        "1) 5 + 3 = 8",
        "(5 + 3 = 8)",
        "5 + 3 = 8 (as before)",
        "the sum is 5 + 3 = 8",
        "true and false = false",
        "not (true and false) = true",
        "true -> false = false",
        "true xor true = false",
    ],
)
def test_a_step_that_holds_is_checked(text: str) -> None:
    assert check_steps(text) == StepReport(1, 1)


@pytest.mark.parametrize(
    "text",
    [
        "12 * 3 = 35",
        "2 + 3 * 4 = 20",
        "10 - 3 - 2 = 9",
        "1/2 + 1/3 = 2/5",
        "20% of 50 = 100",
        "10/3 = 3.33",
        "10/3 ≈ 3.34",
        "0.1 + 0.2 = 0.30000000000000004",
        "5/0 = 0",
        "0^0 = 1",
        "5 < 5",
        "5 + 3 = -8",
        "true and false = true",
    ],
)
def test_a_step_that_does_not_hold_is_named(text: str) -> None:
    report = check_steps(f"1 + 1 = 2. {text}")
    assert (report.checked, report.held) == (2, 1)
    assert report.first_wrong in [str(each) for each in statements(text)]


@pytest.mark.parametrize(
    "text",
    [
        "x - 5 = 7",
        "2x + 3 = 11",
        "5 + 3 = 8x",
        "f(3) + 1 = 9",
        "half of 8 = 4",
        "a third of 6 + 3 = 5",
        "sqrt(16) + 1 = 5",
        "the root of 16 + 9 = 5",
        "3 of 12 = 36",
        "5 + 3 = 8 hundred",
        "3! + 1 = 7!",
        "12 = 12",
        "12 + 1 = 12 + 1",
        "Answer: 42",
        "n = 5",
        "5 + = 8",
        "(5 + 3 = 8))",
        "10:30 + 15 = 45",
        "5 + 3",
        "9^9^9 = 1",
        "2^0.5 = 1.41",
        "1 + true = 2",
        "".join(["("] * 40 + ["1 + 1"] + [")"] * 40) + " = 2",
        " + ".join(["1"] * 60) + " = 60",
        "9" * 50 + " + 1 = 3",
    ],
)
def test_what_is_not_surely_a_statement_of_numbers_alone_is_not_checked(text: str) -> None:
    assert check_steps(text) == StepReport(0, 0)


def test_a_chain_is_several_steps_and_the_same_step_counts_once() -> None:
    report = check_steps("Total = 3 + 4 = 7 = 8 - 1 = 6. And 3 + 4 = 7. 3 + 4 = 7")
    assert report == StepReport(3, 2, "8 - 1 = 6")
    assert check_steps("5 + 3 = 8 and 8 + 1 = 9 => 9 * 2 = 18") == StepReport(3, 3)
    assert check_steps("1 < 3 < 2") == StepReport(2, 1, "3 < 2")


NUMBERS = st.integers(0, 99).map(lambda number: (str(number), Fraction(number)))


def combined(inner: st.SearchStrategy[tuple[str, Fraction]]) -> st.SearchStrategy[tuple[str, Fraction]]:
    def join(left: tuple[str, Fraction], sign: str, right: tuple[str, Fraction]) -> tuple[str, Fraction]:
        value = {"+": left[1] + right[1], "-": left[1] - right[1], "*": left[1] * right[1]}[sign]
        return f"({left[0]} {sign} {right[0]})", value

    return st.builds(join, inner, st.sampled_from("+-*"), inner)


@settings(deadline=None, max_examples=200)
@given(st.recursive(NUMBERS, combined, max_leaves=6), st.integers(-3, 3))
def test_sides_are_computed_exactly(side: tuple[str, Fraction], off: int) -> None:
    text, value = side
    assert check_steps(f"{text} + 0 = {value + off}") == StepReport(
        1, int(off == 0), "" if off == 0 else str(next(statements(f"{text} + 0 = {value + off}")))
    )


@settings(deadline=None, max_examples=300)
@given(st.text("0123456789+-*/^()%=<>. xand\ntruefals,$\\", max_size=80))
def test_no_text_makes_the_checker_raise(text: str) -> None:
    report = check_steps(text)
    assert 0.0 <= report.share <= 1.0


def test_the_outcome_decides_and_the_steps_are_a_part() -> None:
    right = Steps().verify("12 * 3 = 36. 36 + 4 = 41. Answer: 40", 40)
    assert right.status is VerdictStatus.CORRECT
    assert right.parts == {"outcome": 1.0, "process": 0.5}
    assert right.evidence["first_wrong_step"] == "36 + 4 = 41"
    assert right.flags == (Flag.WRONG_STEP,)
    wrong = Steps().verify("12 * 3 = 36. 36 + 4 = 40. Answer: 41", 40)
    assert wrong.status is VerdictStatus.INCORRECT
    assert wrong.score == 0.0
    assert wrong.parts == {"outcome": 0.0, "process": 1.0}


def test_reasoning_without_a_step_that_can_be_checked_says_so_and_earns_nothing() -> None:
    verdict = Steps().verify("It is clear. Answer: 40", 40)
    assert verdict.parts == {"outcome": 1.0, "process": 0.0}
    assert verdict.evidence["checked_steps"] == 0
    assert verdict.flags == (Flag.NO_CHECKABLE_STEP,)


def test_the_outcome_is_any_verifier_of_text_with_its_options() -> None:
    steps = registry.fill(
        Steps, {"outcome": {"name": "posttrain.verifiers.exact:Exact", "ignore_case": True}}, where="steps"
    )
    assert steps.verify("2 + 2 = 4. Answer: FOUR", "four").parts == {"outcome": 1.0, "process": 1.0}


@pytest.mark.parametrize(
    "outcome", ["nothing", {"name": "posttrain.verifiers.sql:Sql"}, {"name": "number", "extra": 1}]
)
def test_an_outcome_that_cannot_judge_text_is_an_error(outcome: Any) -> None:
    with pytest.raises((ConfigError, ValueError)):
        Steps(outcome)


@pytest.mark.parametrize("unit", ["1+1=2 ", "1=", "(", "1<", "2^", "-", "9", "true ", "$", "\\frac{1}{2}", "1,000,"])
def test_the_longest_reply_of_one_repeated_piece_is_checked_without_quadratic_work(unit: str) -> None:
    check_steps(unit * (20_000 // len(unit)))
