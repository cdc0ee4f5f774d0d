"""What is refused before anything is read: sizes that honest answers do not have, and programs.

All of it is linear in the text. How large a *value* may become is the evaluators' affair (`exact.py`, `numeric.py`).
"""

from __future__ import annotations

import re

from posttrain.verifiers.final_answer import Refused
from posttrain.verifiers.flags import Flag

MAX_REPLY_CHARACTERS = 200_000
MAX_ANSWER_CHARACTERS = 2_000
MAX_DEPTH = 40
"""Brackets of any kind within one another."""
MAX_DIGITS = 1_000
"""Of one number as it is written."""

_CODE = re.compile(
    r"__|\*\*|==|:=|->|=>|&&|\|\||[`\"#@]|\b(?:import|lambda|eval|exec|print|return|def|class|while|range|len|int|str|float"
    r"|system|open|os|sys|sympy|sympify|True|False|None)\s*[(.:]|\b(?:import|lambda|def|return)\b"
    r"|\\(?:write|input|include|def|edef|newcommand|renewcommand|catcode|csname|loop|immediate|openin|read|directlua|let)"
    r"(?![a-zA-Z])"
)
_NOT_FINITE = re.compile(r"(?<![a-zA-Z])(?:nan|NaN|NAN)(?![a-zA-Z])")
_LONG_NUMBER = re.compile(rf"[0-9]{{{MAX_DIGITS + 1}}}")


def refusal(answer: str) -> Refused | None:
    """Why `answer` is not so much as read; None where it may be."""
    if len(answer) > MAX_ANSWER_CHARACTERS:
        return Refused(f"the answer has {len(answer)} of at most {MAX_ANSWER_CHARACTERS} characters", (Flag.TOO_LONG,))
    if (deepest := depth(answer)) > MAX_DEPTH:
        return Refused(f"the answer's brackets are {deepest} deep, of at most {MAX_DEPTH}", (Flag.TOO_DEEP,))
    if _LONG_NUMBER.search(answer):
        return Refused(f"a number of the answer has more than {MAX_DIGITS} digits", (Flag.TOO_LARGE,))
    if _CODE.search(answer):
        return Refused("the answer has code in it, which is never run", (Flag.CODE_IN_ANSWER,))
    if _NOT_FINITE.search(answer):
        return Refused("the answer is not a number", (Flag.NOT_FINITE,))
    return None


def depth(text: str) -> int:
    """How deep brackets stand within one another; those that close nothing count for nothing."""
    deepest = now = 0
    for character in text:
        if character in "([{":
            now += 1
            deepest = max(deepest, now)
        elif character in ")]}":
            now = max(0, now - 1)
    return max(deepest, _longest_tower(text))


_POSTFIX_TOWER = re.compile(r"(?:[\^/!_-]\s*[0-9a-zA-Z]?\s*){2,}")


def _longest_tower(text: str) -> int:
    """`9^9^9`, `---1` and `1/1/1` nest without a bracket."""
    runs = (len(re.findall(r"[\^/!_-]", run.group())) for run in _POSTFIX_TOWER.finditer(text))
    return max(runs, default=0)
