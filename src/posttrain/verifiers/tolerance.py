"""Answers that are one number near enough to another, by a tolerance that the task states.

`gold` is `{"value": …, "absolute": …, "relative": …, "unit": …}`: at least one tolerance, numbers as ints, floats or
decimal text. Right is |answer - value| <= max(absolute, relative * |value|), in exact decimal arithmetic. A unit is
asked for, letter by letter, where the task names one, and refused where it does not; nothing is converted.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import ClassVar

from posttrain.core.types import Json, Verdict
from posttrain.verifiers.final_answer import Refused, read_final_answer
from posttrain.verifiers.flags import Flag
from posttrain.verifiers.gold import gold_reader, gold_record
from posttrain.verifiers.numeric import normal_form, read_number


@gold_record
class ToleranceGold:
    """`NumberWithin`'s gold, as it is written."""

    value: int | float | str
    absolute: int | float | str = 0
    relative: int | float | str = 0
    """Of |value|; below 1, since from there on 0 would be right."""
    unit: str = ""

    def __post_init__(self) -> None:
        absolute, relative = _decimal(self.absolute), _decimal(self.relative)
        if absolute < 0 or relative < 0 or (absolute == 0 and relative == 0):
            raise ValueError("a tolerance must be stated, and none may be negative")
        if relative >= 1:
            raise ValueError("a relative tolerance of 1 or more lets 0 pass")
        if self.unit != self.unit.strip() or any(character.isdigit() for character in self.unit[:1]):
            raise ValueError("a unit must not begin with a digit or have white space around it")
        _decimal(self.value)

    def reaches(self, number: Decimal) -> bool:
        value = _decimal(self.value)
        with localcontext() as context:
            context.prec = 200
            return abs(number - value) <= max(_decimal(self.absolute), _decimal(self.relative) * abs(value))


_read = gold_reader(ToleranceGold, "a number with a tolerance")


@dataclass(frozen=True)
class NumberWithin:
    """The reply ends with `Answer: X`, and X is within the task's tolerance of its number."""

    version: ClassVar[str] = "1"

    def verify(self, reply: str, gold: Json) -> Verdict:
        wanted: ToleranceGold = _read(gold)
        text = read_final_answer(reply)
        if isinstance(text, Refused):
            return text.verdict()
        if wanted.unit:
            bare = unicodedata.normalize("NFC", text).removesuffix(unicodedata.normalize("NFC", wanted.unit))
            if bare == unicodedata.normalize("NFC", text):
                return Verdict.incorrect("the answer does not end with its unit", answer=text, flags=(Flag.WRONG_UNIT,))
            text = bare.rstrip()
        number = read_number(text)
        if isinstance(number, Refused):
            return number.verdict()
        if not wanted.reaches(number):
            return Verdict.incorrect("the answer is outside the tolerance", answer=normal_form(number))
        return Verdict.correct(answer=normal_form(number))


def _decimal(written: int | float | str) -> Decimal:
    """Of a float, the shortest decimal that stands for it."""
    number = Decimal(repr(written)) if isinstance(written, float) else read_number(str(written))
    if isinstance(number, Refused) or not number.is_finite() or abs(number.adjusted()) > 60:
        raise ValueError(f"{written!r} is no finite decimal number")
    return number
