"""From a law and a loss to the smallest input that breaks it: sizes upwards, then simpler while it still breaks.

It needs no test framework, and tries the same inputs every time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from posttrain.losses.base import Loss
from posttrain.losses.laws.case import Case, cases, simpler
from posttrain.losses.laws.measure import BrokenError

Check = Callable[[Loss, Case], None]
"""Raises `BrokenError`, or whatever the loss raises, where the case breaks a law."""


def over(check: Check, inputs: Callable[[], Iterable[Case]] = cases) -> Callable[[Loss], None]:
    """The check on every input; raises `BrokenError` with the smallest that breaks it."""

    def try_on(loss: Loss) -> None:
        for case in inputs():
            if broken_by(check, loss, case):
                found = _smallest(check, loss, case)
                raise BrokenError(broken_by(check, loss, found), found.text())

    return try_on


def broken_by(check: Check, loss: Loss, case: Case) -> str:
    """The sentence, or nothing where the law holds."""
    try:
        check(loss, case)
    except BrokenError as broken:
        return str(broken)
    except Exception as error:  # a loss is a plug-in: whatever it raises is its failure
        return raised(error)
    return ""


def raised(error: Exception) -> str:
    message = f": {error}" if str(error) else ""
    return f"the loss raises {type(error).__name__}{message}"


def _smallest(check: Check, loss: Loss, case: Case) -> Case:
    """From a case that breaks a law to one with no simpler one beside it that does."""
    while (found := next((one for one in simpler(case) if broken_by(check, loss, one)), None)) is not None:
        case = found
    return case
