"""The kinds of answer there are, as they were read. Nothing here compares (`compare.py`) or evaluates."""

from __future__ import annotations

import enum
from collections.abc import Sequence as Items
from dataclasses import dataclass

from posttrain.verifiers.math.expression import Expression
from posttrain.verifiers.math.intervals import Region
from posttrain.verifiers.math.units import Measure


class Kind(enum.StrEnum):
    """Of a sequence."""

    TUPLE = "tuple"
    SET = "set"
    LIST = "list"
    """Several answers without a bracket: in any order, or as a tuple's parts."""
    HALF_OPEN_LEFT = "(]"
    HALF_OPEN_RIGHT = "[)"
    CLOSED = "[]"
    """Intervals between ends that have variables."""


@dataclass(frozen=True)
class Value:
    expression: Expression
    measure: Measure | None = None


@dataclass(frozen=True)
class Text:
    words: str


@dataclass(frozen=True)
class Choice:
    """`(B)` or `B) 5`."""

    letter: str
    content: Answer | None = None


@dataclass(frozen=True)
class Sequence:
    kind: Kind
    items: tuple[Answer, ...]
    alternatives: bool = False
    """Joined by "or": a hedge, where one value was asked for."""


@dataclass(frozen=True)
class Matrix:
    rows: tuple[tuple[Expression, ...], ...]


@dataclass(frozen=True)
class Named:
    """`x = 5`, `x ∈ {1, 2}` or `f(x) = x²`: an answer and what it is an answer for."""

    name: str
    answer: Answer


@dataclass(frozen=True)
class Domain:
    """A region of the real line, and the variable that lies in it where one was named."""

    region: Region
    name: str | None = None


@dataclass(frozen=True)
class Relation:
    """left - right `operator` 0, where no variable stands alone; the operator is `=`, `<`, `<=` or `!=`."""

    operator: str
    difference: Expression


@dataclass(frozen=True)
class Colon:
    """A ratio or a time of day: `3:45`, which is not reduced because it may be either."""

    parts: tuple[int, ...]
    suffix: str = ""


@dataclass(frozen=True)
class Untrue:
    """A chain of equalities with a false or undecided link: equal to nothing."""


@dataclass(frozen=True)
class Empty:
    """Nothing in the box: equal to nothing."""


@dataclass(frozen=True)
class Unread:
    """Mathematics beyond this grammar; `unevaluated` where it is a sum, an integral or a limit to be worked out."""

    text: str
    unevaluated: bool = False


Answer = Value | Text | Choice | Sequence | Matrix | Named | Domain | Relation | Colon | Untrue | Empty | Unread
Readings = Items[Answer]
"""One text may be read in several ways: `1,234` is a number or a list. Any of them may be what was meant."""
