"""Arithmetic and logic in free text: finding statements such as `12 * 3 = 36`, and computing their sides exactly.

Rationals and truth values, by a parser of our own with bounds on length, depth and magnitude: nothing is evaluated by
Python. What is not surely a statement of numbers alone (a variable beside it, a word before it that changes its
meaning) is left out: it says nothing about what it cannot read.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

MAX_NUMBER_CHARACTERS = 40
MAX_SIDE_TOKENS = 64
MAX_DEPTH = 16
MAX_BITS = 4096
MAX_EXPONENT = 64

Value = Fraction | bool


class UnreadableError(Exception):
    """The tokens are no expression, or one beyond the bounds."""


class UndefinedError(Exception):
    """An expression without a value: a division by zero."""


@dataclass(frozen=True)
class Token:
    """`kind` is "number", "truth", "op" or "relation"; `text` is in one form for all that mean the same."""

    kind: str
    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Statement:
    """Two sides and the relation between them, as they stand in the text."""

    left: tuple[Token, ...]
    relation: str
    right: tuple[Token, ...]
    linked: bool = False
    """Whether its left side is another statement's right side."""

    def __str__(self) -> str:
        sides = [" ".join(token.text for token in side) for side in (self.left, self.right)]
        return f"{sides[0]} {self.relation} {sides[1]}"


_TOKEN = re.compile(
    r"(?P<number>(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?)"
    r"|(?P<truth>\b(?:true|false)\b)"
    r"|(?P<op><->|->|=>|[↔→])"
    r"|(?P<relation><=|>=|!=|==|[=<>≤≥≠≈])"
    r"|(?P<sign>\*\*|[-+*/^()%×·÷−∧∨¬]|\b(?:and|or|not|xor|of)\b|(?<=[0-9 ])x(?=[0-9 ]))"
    r"|(?P<space>[ \t]+)",
    re.IGNORECASE,
)
_PLAIN = {"×": "*", "·": "*", "x": "*", "÷": "/", "−": "-", "**": "^", "∧": "and", "∨": "or", "¬": "not"}
_PLAIN |= {"==": "=", "≤": "<=", "≥": ">=", "≠": "!=", "=>": "->", "→": "->", "↔": "<->"}
_LATEX = (
    (re.compile(r"\\d?frac\s?\{([^{}\n]{1,60})\}\s?\{([^{}\n]{1,60})\}"), r"((\1)/(\2))"),
    (re.compile(r"\\times|\\cdot"), "*"),
    (re.compile(r"\\div"), "/"),
    (re.compile(r"\\leq?(?![a-z])"), "<="),
    (re.compile(r"\\geq?(?![a-z])"), ">="),
    (re.compile(r"\\neq?(?![a-z])"), "!="),
    (re.compile(r"\\approx"), "≈"),
    (re.compile(r"\\%"), "%"),
    (re.compile(r"\\[()\[\]]|\\left|\\right|\\[,;! ]"), " "),
)
_BULLET = re.compile(r"^[ \t]*(?:[-*•+]|[0-9]{1,3}[.)])[ \t]+", re.MULTILINE)
_PARTING = ("and", "or", "xor", "not", "->", "<->")
"""Between numbers these stand between statements; between truth values they compute."""
_CONNECTIVES = (
    "so then that is and thus therefore now hence gives get have know compute calculate because since first next "
    "finally also but check means where"
)
_CLEAR_BEFORE = re.compile(rf"(?:^|[.:;,!?>]|\b(?:{_CONNECTIVES.replace(' ', '|')}))\s+$|^$", re.IGNORECASE)
"""Behind another word a number may be part of what the word says: half of 8, the root of 16."""
_UNCLEAR_BEHIND = re.compile(
    r"[A-Za-z0-9]|\.[0-9]|[ \t]*[\\_^{\[!√]|[ \t]+[A-Za-z](?![A-Za-z])"
    r"|[ \t]+(?:times|plus|minus|divided|multiplied|over|percent|hundred|thousand|million|billion|mod)\b"
)


def statements(text: str) -> Iterator[Statement]:
    """Those in `text`, in order; `a = b = c` is two."""
    for pattern, plain in _LATEX:
        text = pattern.sub(plain, text)
    for line in _BULLET.sub("", text).replace("$", " ").splitlines():
        for run in _runs(line):
            yield from _statements_of(run, line)


def _runs(line: str) -> Iterator[list[Token]]:
    """Stretches of tokens between which there is nothing but blanks."""
    run: list[Token] = []
    position = 0
    for match in _TOKEN.finditer(line):
        if run and match.start() != position:
            yield run
            run = []
        position = match.end()
        if match.lastgroup and match.lastgroup != "space":
            kind = "op" if match.lastgroup == "sign" else match.lastgroup
            written = match.group().lower()
            run.append(Token(kind, _PLAIN.get(written, written), match.start(), match.end()))
    if run:
        yield run


def _statements_of(run: list[Token], line: str) -> Iterator[Statement]:
    kinds = {token.kind for token in run}
    if "truth" not in kinds:
        for part in _parted(run):
            found = _between_relations(part, line, (*_COMPARE, "≈"))
            yield from (each for each in found if each.relation not in ("=", "≈") or _computes(each))
    elif "number" not in kinds:
        yield from _between_relations(run, line, ("=", "!="))


def _parted(run: list[Token]) -> Iterator[list[Token]]:
    part: list[Token] = []
    for token in run:
        if token.text in _PARTING:
            yield part
            part = []
        else:
            part.append(token)
    yield part


def _computes(statement: Statement) -> bool:
    """Whether there is something to compute or to carry on, and not the same on both sides."""
    same = [token.text for token in statement.left] == [token.text for token in statement.right]
    computed = any(token.kind == "op" for side in (statement.left, statement.right) for token in side[1:])
    return not same and (computed or statement.linked)


def _between_relations(run: list[Token], line: str, known: tuple[str, ...]) -> Iterator[Statement]:
    sides: list[list[Token]] = [[]]
    relations: list[str] = []
    for token in run:
        if token.kind == "relation":
            relations.append(token.text)
            sides.append([])
        else:
            sides[-1].append(token)
    if not relations:
        return
    _drop_outer_brackets(sides)
    clear = [bool(side) for side in sides]
    clear[0] = clear[0] and _begins_clear(sides[0][0], line)
    clear[-1] = clear[-1] and not _UNCLEAR_BEHIND.match(line, sides[-1][-1].end)
    for place, relation in enumerate(relations):
        if relation in known and clear[place] and clear[place + 1]:
            yield Statement(tuple(sides[place]), relation, tuple(sides[place + 1]), linked=place > 0)


def _drop_outer_brackets(sides: list[list[Token]]) -> None:
    """Those around a whole statement, or around a remark behind it."""
    first, last = ([token.text for token in side] for side in (sides[0], sides[-1]))
    if first[:1] == ["("] and first.count("(") > first.count(")"):
        del sides[0][0]
    if last[-1:] == ["("] or (last[-1:] == [")"] and last.count(")") > last.count("(")):
        del sides[-1][-1]


def _begins_clear(first: Token, line: str) -> bool:
    """Whether nothing before its first token could belong to a side."""
    if first.kind == "op" and first.text not in ("(", "-", "not"):
        return False
    before = line[max(0, first.start - 40) : first.start]
    return bool(_CLEAR_BEFORE.search(before.rstrip("(")) if before else True)


def holds(statement: Statement) -> bool:
    """Raises `UnreadableError` where a side cannot be read. A side without a value makes the statement false."""
    try:
        left, right = compute(statement.left), compute(statement.right)
    except UndefinedError:
        return False
    if isinstance(left, bool) is not isinstance(right, bool):
        raise UnreadableError("a number beside a truth value")
    if statement.relation == "≈" and not isinstance(left, bool) and not isinstance(right, bool):
        return _rounds(left, statement.right) or _rounds(right, statement.left)
    return _COMPARE[statement.relation](left, right)


_COMPARE: dict[str, Callable[[Value, Value], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _rounds(value: Fraction, side: tuple[Token, ...]) -> bool:
    """Whether `side` is one number to which `value` rounds, half a unit of its last place at most away."""
    digits = side[-1].text if side[-1].kind == "number" else ""
    if not digits or len(side) > 2 or (len(side) == 2 and side[0].text != "-"):
        return False
    unit = Fraction(1, 10 ** len(digits.partition(".")[2]))
    return abs(value - Fraction(compute(side))) <= unit / 2


def compute(tokens: tuple[Token, ...]) -> Value:
    """The exact value of one side. Raises `UnreadableError` and `UndefinedError`."""
    if len(tokens) > MAX_SIDE_TOKENS:
        raise UnreadableError(f"more than {MAX_SIDE_TOKENS} tokens")
    reader = _Reader(tokens)
    value = reader.expression(0)
    if reader.place != len(tokens):
        raise UnreadableError(f"{tokens[reader.place].text!r} stands where nothing can")
    return value


_BINDS = {"<->": 1, "->": 2, "or": 3, "xor": 3, "and": 4, "+": 6, "-": 6, "*": 7, "/": 7, "of": 7, "^": 9}
_NOT, _NEGATE, _JUXTAPOSED = 5, 8, 7


class _Reader:
    """A precedence parser that computes as it reads; `place` is the next token's."""

    def __init__(self, tokens: tuple[Token, ...]) -> None:
        self.tokens = tokens
        self.place = 0
        self.depth = 0

    def expression(self, least: int) -> Value:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise UnreadableError(f"nested deeper than {MAX_DEPTH}")
        value = self._prefix()
        while (operator_ := self._peek()) is not None:
            if operator_ == "%" and not isinstance(value, bool):
                self.place += 1
                value /= 100
            elif operator_ == "(" and least <= _JUXTAPOSED:
                value = _apply("*", value, self.expression(_JUXTAPOSED + 1))
            elif operator_ in _BINDS and _BINDS[operator_] >= least:
                if operator_ == "of" and self.tokens[self.place - 1].text not in ("%", ")"):
                    raise UnreadableError("'of' behind a plain number")
                self.place += 1
                # Powers group from the right, all else from the left.
                value = _apply(operator_, value, self.expression(_BINDS[operator_] + (operator_ != "^")))
            else:
                break
        self.depth -= 1
        return value

    def _peek(self) -> str | None:
        return self.tokens[self.place].text if self.place < len(self.tokens) else None

    def _prefix(self) -> Value:
        if self.place == len(self.tokens):
            raise UnreadableError("a value is missing")
        token = self.tokens[self.place]
        self.place += 1
        if token.kind == "number":
            return _number(token.text)
        if token.kind == "truth":
            return token.text == "true"
        if token.text == "-":
            return _apply("-", Fraction(0), self.expression(_NEGATE))
        if token.text == "not":
            return not _truth(self.expression(_NOT))
        if token.text == "(":
            value = self.expression(0)
            if self._peek() != ")":
                raise UnreadableError("a bracket is not closed")
            self.place += 1
            return value
        raise UnreadableError(f"{token.text!r} stands where a value must")


def _number(digits: str) -> Fraction:
    if len(digits) > MAX_NUMBER_CHARACTERS:
        raise UnreadableError(f"a number longer than {MAX_NUMBER_CHARACTERS} characters")
    return Fraction(digits.replace(",", ""))


def _truth(value: Value) -> bool:
    if not isinstance(value, bool):
        raise UnreadableError("a number where a truth value must stand")
    return value


def _apply(name: str, left: Value, right: Value) -> Value:
    if name in _LOGIC:
        return _LOGIC[name](_truth(left), _truth(right))
    if isinstance(left, bool) or isinstance(right, bool):
        raise UnreadableError("a truth value where a number must stand")
    if name == "/" and right == 0:
        raise UndefinedError("a division by zero")
    value = _power(left, right) if name == "^" else _ARITHMETIC[name](left, right)
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise UnreadableError(f"a number of more than {MAX_BITS} bits")
    return value


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1 or abs(exponent) > MAX_EXPONENT:
        raise UnreadableError("an exponent that is no small integer")
    if base == 0 and exponent <= 0:
        raise UndefinedError("zero to a power that is not positive")
    return Fraction(base ** int(exponent))


_LOGIC: dict[str, Callable[[bool, bool], bool]] = {
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "->": operator.le,
    "<->": operator.eq,
}
_ARITHMETIC: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "of": operator.mul,
    "/": operator.truediv,
}
