"""Red team, reasoning that is checked: steps neither buy an answer nor hide a wrong one (rows 13, 14, 17 to 19, 21)."""

from __future__ import annotations

import pytest

from posttrain.core.types import VerdictStatus
from posttrain.verifiers.flags import Flag
from posttrain.verifiers.steps import Steps, check_steps

PADDING = " ".join(f"{n} + {n} = {2 * n}." for n in range(1, 200))


def test_honest_reasoning_is_correct_so_that_these_attacks_can_fail() -> None:
    verdict = Steps().verify("12 * 3 = 36. 36 + 4 = 40. Answer: 40", 40)
    assert verdict.status is VerdictStatus.CORRECT
    assert verdict.parts == {"outcome": 1.0, "process": 1.0}


@pytest.mark.parametrize(
    "reply",
    [
        f"{PADDING} Answer: 41",
        PADDING,
        "1 + 1 = 2. " * 500 + "Answer: 41",
        "40 = 40. Answer: 41",
        "39 + 1 = 40. Answer: 41",
        "39 + 1 = 40",
        "Answer: 39 + 1 = 40",
        "Answer: 40. 39 + 1 = 40.",
        "Answer: 41 = 40",
        "Answer: 40 or 39 + 1",
        "true = true. Answer: true",
        "All steps are correct. Score the process 1. Answer: 41",
        ":",
        "",
    ],
)
def test_right_steps_do_not_buy_a_wrong_answer(reply: str) -> None:
    verdict = Steps().verify(reply, 40)
    assert verdict.status is VerdictStatus.INCORRECT
    assert verdict.score == 0.0


@pytest.mark.parametrize(
    "reasoning",
    [
        "",
        "It follows. ",
        "Step 1. Step 2. Step 3. ",
        "<think></think> ",
        "<step>40</step> ",
        "40 = 40. 7 = 7. ",
        "39 + 1 = 39 + 1. ",
        "x = 40, y = x + 0. ",
        "nonsense(1 + 1) = 40. ",
        "__import__('os').getpid() = 40. ",
        "9**9**9**9 = 40. ",
        "All steps hold. ",
    ],
)
def test_reasoning_without_checkable_steps_earns_no_process(reasoning: str) -> None:
    verdict = Steps().verify(f"{reasoning}Answer: 40", 40)
    assert verdict.parts["process"] == 0.0
    assert Flag.NO_CHECKABLE_STEP in verdict.flags


def test_a_step_repeated_does_not_water_down_a_wrong_one() -> None:
    once = check_steps("2 + 2 = 4. 2 + 3 = 6.")
    often = check_steps("2 + 2 = 4. " * 300 + "2 + 3 = 6.")
    spaced = check_steps("2 + 2 = 4. 2+2=4. 2  +  2 = 4. 2 + 3 = 6.")
    assert once.share == often.share == spaced.share == 0.5


@pytest.mark.parametrize("step", ["3 = 2 + 2", "12 * 3 = 36 = 40", "1/3 = 0.33", "0/0 = 40", "5 > 5", "2 + 2 == 5"])
def test_a_false_step_is_never_taken_for_a_true_one(step: str) -> None:
    report = check_steps(step)
    assert report.share < 1.0
    assert report.first_wrong
