"""Answers that are several items: a set, a bag or a list, separated by commas.

`gold` is a list of texts or of numbers (ints or decimal text are compared as numbers if all items are). One pair of
`{}`, `[]` or `()` around the items is taken off. Whether order and repetition count are options.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar, Literal

from posttrain.core.types import Json, Verdict
from posttrain.verifiers.exact import read_visible_answer
from posttrain.verifiers.final_answer import Refused
from posttrain.verifiers.flags import Flag
from posttrain.verifiers.numeric import normal_form, read_number
from posttrain.verifiers.text_form import normal_text

_BRACKETS = ("{}", "[]", "()")


@dataclass(frozen=True)
class Collection:
    """The reply ends with `Answer: a, b, c`, and the items are those of `gold`."""

    ordered: bool = False
    duplicates: Literal["refuse", "ignore", "count"] = "refuse"
    """What an item that comes twice is: an error, the same as once, or another item. Lists count them always."""
    ignore_case: bool = False

    version: ClassVar[str] = "1"

    def verify(self, reply: str, gold: Json) -> Verdict:
        wanted, numbers = self._read(gold)
        text = read_visible_answer(reply)
        if isinstance(text, Refused):
            return text.verdict()
        items = self._items(text, numbers)
        if isinstance(items, Refused):
            return items.verdict()
        return self._compare(wanted, items)

    def _read(self, gold: Json) -> tuple[list[str], bool]:
        """The items in their normal form, and whether they are numbers."""
        if not isinstance(gold, list) or not gold:
            raise ValueError("the items must be a list that is not empty")
        if any(isinstance(item, bool) or not isinstance(item, int | str) for item in gold):
            raise ValueError("each item must be a text, an int or decimal text")
        numbers = [read_number(str(item)) for item in gold]
        if not any(isinstance(number, Refused) for number in numbers):
            wanted = [normal_form(number) for number in numbers if not isinstance(number, Refused)]
        else:
            wanted = [normal_text(str(item), ignore_case=self.ignore_case) for item in gold]
        if any(not item or "," in item for item in wanted):
            raise ValueError("an item must not be empty or hold a comma, which separates the items of an answer")
        if self.duplicates == "refuse" and not self.ordered and len(set(wanted)) < len(wanted):
            raise ValueError("an item comes twice, and duplicates are refused")
        return wanted, not any(isinstance(number, Refused) for number in numbers)

    def _items(self, text: str, numbers: bool) -> list[str] | Refused:
        if text[0] + text[-1] in _BRACKETS:
            text = text[1:-1]
        items = [normal_text(item, ignore_case=self.ignore_case) for item in text.split(",")]
        if not all(items):
            return Refused("an item of the answer is empty", (Flag.NO_ANSWER,))
        if not numbers:
            return items
        values = [read_number(item) for item in items]
        refused = next((value for value in values if isinstance(value, Refused)), None)
        return refused or [normal_form(value) for value in values if not isinstance(value, Refused)]

    def _compare(self, wanted: list[str], items: list[str]) -> Verdict:
        answer = ", ".join(items if self.ordered else sorted(items))
        if self.ordered:
            same = items == wanted
        elif self.duplicates == "count":
            same = Counter(items) == Counter(wanted)
        elif self.duplicates == "refuse" and len(set(items)) < len(items):
            return Verdict.incorrect("an item comes twice", answer=answer, flags=(Flag.REPETITION,))
        else:
            same = set(items) == set(wanted)
        if same:
            return Verdict.correct(answer=answer)
        if self.ordered and sorted(items) == sorted(wanted):
            return Verdict.incorrect("the items stand in another order", answer=answer)
        return Verdict.incorrect("the answer has other items than were asked for", answer=answer)
