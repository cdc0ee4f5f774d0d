"""The parts that generated programs are made of: each has words for people, code for Python and a function for us.

Our function computes expected values; no generated code runs in this process. Code is put together with the
parentheses that precedence asks for and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from posttrain.core.types import Json

ANY, SUM, PRODUCT, UNARY, POWER, ATOM = range(6)
"""How tightly code binds, loosest first; a comparison or conditional is ANY."""


@dataclass(frozen=True)
class Piece:
    """One interchangeable part. In `words` and `code`, `{}` stands for what it is applied to."""

    words: tuple[str, ...]
    """Alternatives; empty for a part that is never asked for and only stands in for a forgotten one."""
    code: str
    apply: Callable[..., Any]
    binds: int = ATOM
    needs: int = ANY
    """How tightly the code that it is applied to must bind."""
    edges: tuple[int, ...] = ()
    """Inputs at and around which it behaves differently."""
    kind: str = ""
    """Parts of one kind differ in a constant only."""
    verb: str = ""
    infix: str = ""


@dataclass(frozen=True)
class Code:
    text: str
    binds: int = ATOM

    def then(self, piece: Piece) -> Code:
        """The code of `piece` applied to this."""
        if piece is NOTHING:
            return self
        text = self.text if self.binds >= piece.needs else f"({self.text})"
        return Code(piece.code.replace("{}", text), piece.binds)


def same(value: Json) -> Json:
    return value


NOTHING = Piece((), "{}", same)
"""The forgotten part."""


def times(k: int) -> Piece:
    words = (f"{{}}, each multiplied by {k}", f"{{}}, each times {k}")
    verb = f"multiplies {{}} by {k}"
    return Piece(words, f"{{}} * {k}", lambda x: x * k, PRODUCT, PRODUCT, (), "times", verb, f"times {k}")


def plus(k: int) -> Piece:
    words = (f"{{}}, each increased by {k}", f"{{}}, each plus {k}")
    return Piece(words, f"{{}} + {k}", lambda x: x + k, SUM, SUM, (-k,), "plus", f"adds {k} to {{}}", f"plus {k}")


def minus(k: int) -> Piece:
    words = (f"{{}}, each decreased by {k}", f"{{}}, each minus {k}")
    verb = f"subtracts {k} from {{}}"
    return Piece(words, f"{{}} - {k}", lambda x: x - k, SUM, SUM, (k,), "minus", verb, f"minus {k}")


SQUARE = Piece(
    ("the squares of {}", "{}, each squared"),
    "{} ** 2",
    lambda x: x * x,
    POWER,
    ATOM,
    kind="square",
    verb="squares {}",
    infix="squared",
)
NEGATE = Piece(("{}, each negated",), "-{}", lambda x: -x, UNARY, POWER, kind="negate", verb="negates {}")
ABSOLUTE = Piece(("the absolute values of {}",), "abs({})", abs, kind="abs", verb="takes the absolute value of {}")

STEPS = (
    SQUARE,
    NEGATE,
    ABSOLUTE,
    *map(times, range(2, 13)),
    *map(plus, range(1, 21)),
    *map(minus, range(1, 21)),
)
"""Whole number → whole number."""

NEAR_STEPS = (times(13), plus(21), minus(21))
"""Never asked for: the outermost constants, off by one. The other constants have their neighbours among themselves."""


def _comparison(k: int, word: str, sign: str, holds: Callable[[int], bool]) -> Piece:
    words = (f"the numbers in {{}} {word} than {k}", f"the numbers in {{}} that are {word} than {k}")
    return Piece(words, f"{{}} {sign} {k}", holds, ANY, SUM, (k - 1, k, k + 1), word)


def greater(k: int) -> Piece:
    return _comparison(k, "greater", ">", lambda x: x > k)


def less(k: int) -> Piece:
    return _comparison(k, "less", "<", lambda x: x < k)


def divisible(k: int) -> Piece:
    words = (f"the numbers in {{}} divisible by {k}", f"the multiples of {k} in {{}}")
    return Piece(words, f"{{}} % {k} == 0", lambda x: x % k == 0, ANY, PRODUCT, (k, k + 1, -k), "divisible")


FILTERS = (
    Piece(
        ("the even numbers in {}", "the numbers in {} that are even"), "{} % 2 == 0", lambda x: x % 2 == 0, kind="even"
    ),
    Piece(("the odd numbers in {}", "the numbers in {} that are odd"), "{} % 2 == 1", lambda x: x % 2 == 1, kind="odd"),
    Piece(("the positive numbers in {}",), "{} > 0", lambda x: x > 0, edges=(0, 1), kind="positive"),
    Piece(("the negative numbers in {}",), "{} < 0", lambda x: x < 0, edges=(0, -1), kind="negative"),
    *map(greater, range(1, 21)),
    *map(less, range(1, 21)),
    *map(divisible, range(3, 13)),
)
"""Whole number → whether it stays."""

NEAR_FILTERS = (greater(-1), greater(21), less(-1), less(21), divisible(13))
"""Never asked for: off by one from the outermost constants, and from the 0 of positive and negative."""


def product(values: Iterable[int]) -> int:
    result = 1
    for value in values:
        result *= value
    return result


REDUCES = (
    Piece(("the sum of {}", "the total of {}"), "sum({})", sum, kind="sum"),
    Piece(("the product of {}, or 1 if there are none",), "math.prod({})", product, kind="product"),
    Piece(
        ("the largest of {}, or 0 if there are none", "the maximum of {} (0 if there are none)"),
        "max([{}], default=0)",
        lambda values: max(values, default=0),
        kind="max",
    ),
    Piece(
        ("the smallest of {}, or 0 if there are none", "the minimum of {} (0 if there are none)"),
        "min([{}], default=0)",
        lambda values: min(values, default=0),
        kind="min",
    ),
    Piece(("the count of {}", "how many there are of {}"), "len([{}])", len, kind="count"),
    Piece(("a list of {}",), "[{}]", list, kind="list"),
    Piece(("a sorted list of {}",), "sorted({})", sorted, kind="sorted"),
)
"""Whole numbers → what the function returns."""

COMBINATIONS = (
    Piece((), "a + b", lambda a, b: a + b, SUM, verb="adds a and b"),
    Piece((), "a - b", lambda a, b: a - b, SUM, verb="subtracts b from a"),
    Piece((), "b - a", lambda a, b: b - a, SUM, verb="subtracts a from b"),
    Piece((), "a * b", lambda a, b: a * b, PRODUCT, verb="multiplies a by b"),
    Piece((), "max(a, b)", max, verb="takes the larger of a and b"),
    Piece((), "min(a, b)", min, verb="takes the smaller of a and b"),
)
"""Two whole numbers → one."""

LETTERS = "aeioulnrst"


def without(letter: str) -> Piece:
    words = (f"{{}} with every '{letter}' removed", f"{{}} without any '{letter}'")
    return Piece(words, f"{{}}.replace('{letter}', '')", lambda s: s.replace(letter, ""), needs=ATOM, kind="without")


def replaced(old: str, new: str) -> Piece:
    words = (f"{{}} with every '{old}' replaced by '{new}'",)
    code = f"{{}}.replace('{old}', '{new}')"
    return Piece(words, code, lambda s: s.replace(old, new), needs=ATOM, kind="replaced")


def first(k: int) -> Piece:
    return Piece((f"the first {k} characters of {{}}",), f"{{}}[:{k}]", lambda s: s[:k], needs=ATOM, kind="first")


def last(k: int) -> Piece:
    return Piece((f"the last {k} characters of {{}}",), f"{{}}[-{k}:]", lambda s: s[-k:], needs=ATOM, kind="last")


def rest(k: int) -> Piece:
    """What `last` is when its minus is forgotten."""
    return Piece((), f"{{}}[{k}:]", lambda s: s[k:], needs=ATOM)


def repeated(k: int) -> Piece:
    words = (f"{{}} repeated {k} times",)
    return Piece(words, f"{{}} * {k}", lambda s: s * k, PRODUCT, PRODUCT, kind="repeated")


REPLACEMENTS = tuple(replaced(old, new) for old in LETTERS for new in LETTERS if old != new)
"""Text → text, letter by letter."""

TRANSFORMS = (
    Piece(("{} reversed", "{} backwards"), "{}[::-1]", lambda s: s[::-1], needs=ATOM, kind="reversed"),
    Piece(("{} in upper case",), "{}.upper()", str.upper, needs=ATOM, kind="upper"),
    *map(without, LETTERS),
    *REPLACEMENTS,
    *map(first, range(2, 7)),
    *map(last, range(2, 7)),
    *map(repeated, range(2, 5)),
)
"""Text → text."""

NEAR_TRANSFORMS = (first(1), first(7), last(1), last(7), *map(rest, range(2, 7)), repeated(5))
"""Never asked for: the outermost constants off by one, a minus forgotten."""


def occurrences(letter: str) -> Piece:
    words = (f"the number of times '{letter}' occurs in {{}}",)
    return Piece(words, f"{{}}.count('{letter}')", lambda s: s.count(letter), needs=ATOM, kind="occurrences")


MEASURES = (
    Piece(("{}",), "{}", same, kind="text"),
    Piece(("the length of {}",), "len({})", len, kind="length"),
    *map(occurrences, LETTERS),
)
"""Text → what the function returns."""
