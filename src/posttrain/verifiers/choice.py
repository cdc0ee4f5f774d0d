"""Answers that are one of the task's options, by its letter or by its content.

`gold` is `{"options": {"A": "Paris", "B": "Rome"}, "correct": "A"}`. `A`, `(A)`, `A)`, `A.` and `A) Paris` name the
option A; `Paris` does so where no other option says the same. A letter with another option's content names two options
and is refused, as is any list of letters. A text that is a letter is never read as content.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from posttrain.core.types import Json, Verdict
from posttrain.verifiers.exact import read_visible_answer
from posttrain.verifiers.final_answer import Refused
from posttrain.verifiers.flags import Flag
from posttrain.verifiers.gold import gold_reader, gold_record
from posttrain.verifiers.text_form import normal_text

_LETTER = re.compile(r"[A-Z]|[1-9][0-9]?")
_MARKED = re.compile(r"\(?([A-Za-z]|[1-9][0-9]?)(?:\)|\.|:|(?=$))\s*(.*)", re.DOTALL)
_SEVERAL = re.compile(r"\(?[A-Za-z]\)?(?:\s*(?:,|;|/|&|\band\b)\s*\(?[A-Za-z]\)?)+")


@gold_record
class ChoiceGold:
    """`Choice`'s gold: what can be chosen, by letter or number, and which it is."""

    options: dict[str, str]
    correct: str

    def __post_init__(self) -> None:
        if len(self.options) < 2 or self.correct not in self.options:
            raise ValueError("there must be two options at least, and the correct one must be among them")
        if not all(_LETTER.fullmatch(letter) for letter in self.options):
            raise ValueError("options are named by capital letters or by numbers below 100")
        contents = [_same(content) for content in self.options.values()]
        if not all(contents) or contents.count(_same(self.options[self.correct])) > 1:
            raise ValueError("an option is empty, or another option says the same as the correct one")


_read = gold_reader(ChoiceGold, "a choice")


@dataclass(frozen=True)
class Choice:
    """The reply ends with `Answer: X`, and X names the correct option and no other."""

    version: ClassVar[str] = "1"

    def verify(self, reply: str, gold: Json) -> Verdict:
        wanted: ChoiceGold = _read(gold)
        text = read_visible_answer(reply)
        if isinstance(text, Refused):
            return text.verdict()
        letter = chosen(text, wanted.options)
        if isinstance(letter, Refused):
            return letter.verdict()
        if letter != wanted.correct:
            return Verdict.incorrect("the answer is another option", answer=letter)
        return Verdict.correct(answer=letter)


def chosen(text: str, options: Mapping[str, str]) -> str | Refused:
    """The letter of the one option that `text` names."""
    marked = _MARKED.fullmatch(text)
    if marked and marked[1].upper() in options:
        letter, content = marked[1].upper(), marked[2]
        if not content or _same(content) == _same(options[letter]):
            return letter
        if any(_same(content) == _same(other) for other in options.values()):
            return Refused("the answer names one option and gives another's content", (Flag.SEVERAL_ANSWERS,))
    named = [letter for letter, content in options.items() if _same(text) == _same(content)]
    if len(named) == 1:
        return named[0]
    if len(named) > 1 or _SEVERAL.fullmatch(text):
        return Refused("the answer names several options", (Flag.SEVERAL_ANSWERS,))
    return Refused("the answer names none of the options", (Flag.NOT_AN_OPTION,))


def _same(content: str) -> str:
    return normal_text(content, ignore_case=True).removesuffix(".").rstrip()
