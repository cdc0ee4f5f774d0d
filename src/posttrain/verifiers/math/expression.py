"""Expressions as trees of three kinds of node. They are built by `parser.py` and evaluated by nobody here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Number:
    """A number as it was written, exactly: `0.5`, `1 1/2` and `1.2·10^3` are one number each, `1/2` is a quotient."""

    value: Fraction


@dataclass(frozen=True, slots=True)
class Symbol:
    """A variable, its subscript included, or one of `CONSTANTS`."""

    name: str


@dataclass(frozen=True, slots=True)
class Apply:
    """`operation` is one of those that `numeric.py` evaluates."""

    operation: str
    arguments: tuple[Expression, ...]


Expression = Number | Symbol | Apply

PI, E, IMAGINARY, INFINITY = "\\pi", "e", "i", "\\infty"
CONSTANTS = frozenset((PI, E, IMAGINARY, INFINITY))
ZERO, ONE = Number(Fraction(0)), Number(Fraction(1))


def apply(operation: str, *arguments: Expression) -> Apply:
    return Apply(operation, arguments)


def number(value: int | Fraction) -> Number:
    return Number(Fraction(value))


def negative(expression: Expression) -> Expression:
    return Number(-expression.value) if isinstance(expression, Number) else apply("neg", expression)


def nodes(expression: Expression) -> Iterator[Expression]:
    """All of the tree, in no stated order."""
    waiting = [expression]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, Apply):
            waiting.extend(node.arguments)


def variables(expression: Expression) -> frozenset[str]:
    names = {node.name for node in nodes(expression) if isinstance(node, Symbol)}
    return frozenset(names - CONSTANTS)


def is_infinite(expression: Expression) -> bool:
    """Whether it is ∞ or -∞ as it is written."""
    if isinstance(expression, Apply) and expression.operation == "neg":
        return is_infinite(expression.arguments[0])
    return expression == Symbol(INFINITY)
