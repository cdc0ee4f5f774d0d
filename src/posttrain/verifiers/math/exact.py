"""Values that are rational numbers, exactly, and what can be said of integers that are too large to write.

Nothing larger than `MAX_BITS` is ever computed. Of what is larger a lower bound is known, so that it differs from what
is smaller; two such integers are compared by their remainders.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

from posttrain.verifiers.math.expression import Apply, Expression, Number, Symbol

MAX_BITS = 20_000
_MAX_FACTORIAL = 2_000
_PRIMES = (2**61 - 1, 2**89 - 1, 2**107 - 1)
_MAX_EXPONENT_BITS = 4_000


class NotRational(Exception):
    """The expression has a variable, an irrational part, or no value."""


class TooLarge(Exception):
    """An integer of more than `MAX_BITS` bits, in absolute value at least 2^bits; None where no bound is known."""

    def __init__(self, bits: float | None = None) -> None:
        super().__init__(bits)
        self.bits = bits


def rational(expression: Expression) -> Fraction:
    """Raises `NotRational` and `TooLarge`."""
    if isinstance(expression, Number):
        return expression.value
    if isinstance(expression, Symbol):
        raise NotRational
    if expression.operation == "add":
        return _sum(expression.arguments)
    if expression.operation == "pow":
        return _power(*expression.arguments)
    values = [rational(argument) for argument in expression.arguments]
    return _small(_applied(expression.operation, values))


_ARITHMETIC = frozenset(("add", "mul", "neg", "div", "pow"))


def rational_at(expression: Expression, point: Mapping[str, Fraction]) -> Fraction:
    """Where variables have these values. Raises `NotRational` where a power is none of an integer, and `TooLarge`."""
    if isinstance(expression, Number):
        return expression.value
    if isinstance(expression, Symbol):
        if expression.name not in point:
            raise NotRational
        return point[expression.name]
    if expression.operation not in _ARITHMETIC:
        raise NotRational
    values = [rational_at(argument, point) for argument in expression.arguments]
    if expression.operation == "add":
        return _small(sum(values, Fraction(0)))
    if expression.operation == "pow":
        if values[1].denominator != 1:
            raise NotRational
        return _power(*map(Number, values))
    return _small(_applied(expression.operation, values))


def rational_or_none(expression: Expression) -> Fraction | None:
    try:
        return rational(expression)
    except (NotRational, TooLarge):
        return None


def undone(expression: Expression) -> bool:
    """Whether arithmetic between rational numbers is left to the reader: `5+7`, `2·3`, `sqrt(9+16)`.

    A quotient, a power, a root, a factorial and a logarithm are forms of a number and not undone.
    """
    if not isinstance(expression, Apply):
        return False
    if expression.operation in ("add", "mul"):
        known = sum(1 for argument in expression.arguments if _has_value(argument))
        if known > 1:
            return True
    return any(undone(argument) for argument in expression.arguments)


def plain(expression: Expression) -> bool:
    """Whether it is written as a value: a number, a quotient of two, perhaps with a sign."""
    if isinstance(expression, Apply):
        signs = expression.operation in ("neg", "div")
        return signs and all(plain(argument) for argument in expression.arguments)
    return isinstance(expression, Number)


def folded(expression: Expression) -> Expression:
    """As one number, where that is what it is: for arithmetic of ours, which is nobody's exercise."""
    value = rational_or_none(expression)
    return expression if value is None else Number(value)


def same_large(left: Expression, right: Expression) -> bool:
    """Whether two integers too large to write have the same remainders. Raises `TooLarge` where none is to be had."""
    return all(_remainder(left, prime) == _remainder(right, prime) for prime in _PRIMES)


def _has_value(expression: Expression) -> bool:
    try:
        rational(expression)
    except TooLarge:
        return True
    except NotRational:
        return False
    return True


def _sum(arguments: tuple[Expression, ...]) -> Fraction:
    total, large = Fraction(0), []
    for argument in arguments:
        try:
            total += rational(argument)
        except TooLarge as found:
            large.append(found)
    if not large:
        return _small(total)
    raise TooLarge(large[0].bits - 1 if len(large) == 1 and large[0].bits is not None else None)


def _power(base: Expression, exponent: Expression) -> Fraction:
    root = rational(base)
    try:
        power = rational(exponent)
    except TooLarge as found:
        if abs(root) >= 2 and found.bits is not None and _is_positive(exponent):
            raise TooLarge(math.inf) from None
        raise TooLarge from None
    if power.denominator != 1:
        return _root_power(root, power)
    if root == 0:
        if power <= 0:
            raise NotRational
        return root
    bits = (root.numerator.bit_length() + root.denominator.bit_length()) * abs(power.numerator)
    if abs(root) != 1 and bits > 2 * MAX_BITS:
        raise TooLarge(math.log2(abs(root)) * power.numerator if abs(root) >= 2 and power > 0 else None)
    return root**power.numerator


def _is_positive(exponent: Expression) -> bool:
    return not any(isinstance(node, Number) and node.value < 0 for node in (exponent,)) and not (
        isinstance(exponent, Apply) and exponent.operation in ("neg", "add")
    )


def _root_power(root: Fraction, power: Fraction) -> Fraction:
    if power.denominator > 64 or abs(power.numerator) > 1_000:
        raise NotRational
    base = _root(root, power.denominator)
    if base == 0 and power < 0:
        raise NotRational
    return _small(base**power.numerator)


def _root(value: Fraction, degree: int) -> Fraction:
    if value < 0:
        if degree % 2 == 0:
            raise NotRational
        return -_root(-value, degree)
    parts = [_integer_root(part, degree) for part in (value.numerator, value.denominator)]
    return Fraction(*parts)


def _integer_root(value: int, degree: int) -> int:
    """By Newton's steps from above. Raises `NotRational` where it is no integer."""
    if value < 2:
        return value
    guess = 1 << -(-value.bit_length() // degree)
    while True:
        better = ((degree - 1) * guess + value // guess ** (degree - 1)) // degree
        if better >= guess:
            break
        guess = better
    if guess**degree != value:
        raise NotRational
    return guess


def _applied(operation: str, values: list[Fraction]) -> Fraction:  # noqa: PLR0911 - one line for each operation
    first = values[0]
    if operation == "mul":
        return math.prod(values, start=Fraction(1))
    if operation == "neg":
        return -first
    if operation == "div":
        if values[1] == 0:
            raise NotRational
        return first / values[1]
    if operation == "root":
        if values[1].denominator != 1 or not 1 <= values[1] <= 64:
            raise NotRational
        return _root(first, values[1].numerator)
    if operation == "abs":
        return abs(first)
    if operation in ("floor", "ceil"):
        return Fraction(math.floor(first) if operation == "floor" else math.ceil(first))
    if operation == "factorial":
        return _factorial(first)
    if operation == "binomial":
        return _binomial(first, values[1])
    raise NotRational


def _factorial(value: Fraction) -> Fraction:
    if value.denominator != 1 or value < 0:
        raise NotRational
    if value > _MAX_FACTORIAL:
        bits = value.numerator.bit_length() - 1
        raise TooLarge(value.numerator * (bits - 2.0) if bits < 1_000 else math.inf)
    return Fraction(math.factorial(value.numerator))


def _binomial(upper: Fraction, lower: Fraction) -> Fraction:
    if any(part.denominator != 1 or part < 0 for part in (upper, lower)):
        raise NotRational
    if upper > _MAX_FACTORIAL and min(lower, upper - lower) > 50:
        raise TooLarge
    return Fraction(math.comb(upper.numerator, lower.numerator))


def _small(value: Fraction) -> Fraction:
    if value.denominator == 1 and value.numerator.bit_length() > MAX_BITS:
        raise TooLarge(value.numerator.bit_length() - 1)
    if value.numerator.bit_length() + value.denominator.bit_length() > 2 * MAX_BITS:
        raise TooLarge
    return value


def _remainder(expression: Expression, prime: int) -> int:
    if isinstance(expression, Number) and expression.value.denominator == 1:
        return expression.value.numerator % prime
    if isinstance(expression, Apply):
        if expression.operation == "pow":
            exponent = rational(expression.arguments[1])
            if exponent.denominator == 1 and exponent >= 0 and exponent.numerator.bit_length() <= _MAX_EXPONENT_BITS:
                return pow(_remainder(expression.arguments[0], prime), exponent.numerator, prime)
        elif expression.operation in ("add", "mul", "neg"):
            parts = [_remainder(argument, prime) for argument in expression.arguments]
            if expression.operation == "neg":
                return -parts[0] % prime
            return (sum(parts) if expression.operation == "add" else math.prod(parts)) % prime
    raise TooLarge
