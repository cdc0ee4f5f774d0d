"""Answers that are one number, compared exactly: a sign, ASCII digits, perhaps a decimal point.

Equal values are equal whatever their notation (`42`, `042`, `42.0`). Expressions, exponents, separators, units, NaN
and infinities are refused; nothing is evaluated. There is no tolerance: a task that wants one needs another verifier.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar

from posttrain.core.types import Json, Verdict
from posttrain.verifiers.final_answer import Refused, read_final_answer
from posttrain.verifiers.flags import Flag

MAX_DIGITS = 40

_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_REFUSALS = (
    (re.compile(r"\b(?:nan|inf|infinity)\b|∞", re.IGNORECASE), Flag.NOT_FINITE),
    (re.compile(r"[()\[\]{}<>_'\"`\\$;:]"), Flag.CODE_IN_ANSWER),
    (re.compile(r"[=+*/^×÷√∑%]|[0-9] ?[-−–eE] ?[0-9]"), Flag.UNEVALUATED),
    (re.compile(r"[0-9][ ,;&]+(?:and )?-?[0-9]"), Flag.SEVERAL_ANSWERS),
)


def read_number(text: str) -> Decimal | Refused:
    """`text` as an exact number. Of numbers in sequence (`5, 7`, `1,234`) none is taken."""
    if _NUMBER.fullmatch(text):
        if len(text) > MAX_DIGITS:
            return Refused(f"the number has {len(text)} of at most {MAX_DIGITS} characters", (Flag.TOO_LONG,))
        return Decimal(text)
    for pattern, flag in _REFUSALS:
        if pattern.search(text):
            return Refused(f"the answer is not one plain number ({flag})", (flag,))
    return Refused("the answer is not a number", (Flag.NOT_A_NUMBER,))


def normal_form(number: Decimal) -> str:
    """One text for each value: no exponent, no idle zeros, no negative zero."""
    text = f"{number:f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    sign = "-" if text.startswith("-") else ""
    digits = text.removeprefix("-").lstrip("0") or "0"
    digits = f"0{digits}" if digits.startswith(".") else digits
    return digits if digits == "0" else f"{sign}{digits}"


def verify_number(reply: str, expected: int | str) -> Verdict:
    """Whether the reply's final answer is the number `expected`: an int, or decimal text such as "3.5".

    Raises ValueError where `expected` is neither: a broken task is no wrong answer.
    """
    wanted = read_number(str(expected)) if isinstance(expected, int | str) else None
    if isinstance(expected, bool) or not isinstance(wanted, Decimal):
        raise ValueError(f"the expected answer must be an integer or decimal text, not {expected!r}")
    text = read_final_answer(reply)
    if isinstance(text, Refused):
        return text.verdict()
    number = read_number(text)
    if isinstance(number, Refused):
        return number.verdict()
    answer = normal_form(number)
    if number != wanted:
        return Verdict.incorrect("the answer is another number", answer=answer)
    return Verdict.correct(answer=answer)


@dataclass(frozen=True)
class Number:
    """`verify_number` by name: the reply ends with `Answer: X`, and X is the number `gold`."""

    version: ClassVar[str] = "1"

    def verify(self, reply: str, gold: Json) -> Verdict:
        return verify_number(reply, gold)
