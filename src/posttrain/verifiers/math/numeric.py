"""Whether two expressions are one function, by their values at chosen points: exact where there is only
arithmetic, else to 150 digits.

Difference at one point proves that they differ. Agreement at all points is taken for equality: what lies within
`MAX_MAGNITUDE` and is built from few operations cannot come so near and differ, except on purpose and beyond that
magnitude, where the answer is `None`: undecided. Points where an expression has no real value are skipped, so that
`ln x²` and `2 ln x` are the same, while `√x²` and `x` are not. Points are fixed: the same question has the same answer.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

from mpmath import MPContext  # type: ignore[import-untyped]

from posttrain.verifiers.math.exact import NotRational, TooLarge, rational_at
from posttrain.verifiers.math.expression import (
    IMAGINARY,
    INFINITY,
    PI,
    Apply,
    E,
    Expression,
    Number,
    Symbol,
    nodes,
    variables,
)

DIGITS = 150
_AGREE = DIGITS - 25
MAX_MAGNITUDE = 200
"""Binary exponent of the largest and the smallest value other than 0 that may turn up on the way: 10^60 and 10^-60,
whose effect on a cosine is seen in the 121st digit."""
MAX_VARIABLES = 12
_MIN_POINTS = 3
_LOG_BASES = ("10", "e")

_mp = MPContext()
_mp.dps = DIGITS
_GRAIN = _mp.mpf(10) ** (15 - DIGITS)
_CLOSE = _mp.mpf(10) ** -_AGREE

_MAGNITUDES = tuple(
    Fraction(part, 10**9)
    for part in (713528467, 1384719253, 238461997, 2271938461, 547183093, 1719284653, 12700312341, 137291823013)
)
_PATTERNS = (
    (0, (1,)),
    (1, (1,)),
    (2, (-1,)),
    (3, (-1,)),
    (4, (1,)),
    (5, (1, -1)),
    (6, (1, -1)),
    (6, (-1, 1)),
    (7, (1,)),
)
"""Of each point: the magnitude to begin with, and the signs to go round."""

Point = Mapping[str, Fraction]


class Undefined(Exception):
    """No real value at this point."""


class Undecided(Exception):
    """A value on the way is too large or too small for this many digits."""


def identical(left: Expression, right: Expression) -> bool | None:
    """Whether they have the same values. `\\log` without a base is the natural one or that of 10, the same for both."""
    bare_log = any(
        isinstance(node, Apply) and node.operation == "log" for side in (left, right) for node in nodes(side)
    )
    answers = [_identical(left, right, base) for base in (_LOG_BASES if bare_log else ("e",))]
    return True if True in answers else None if None in answers else False


def proportional(left: Expression, right: Expression) -> float | None:
    """The constant c other than 0 with left = c·right everywhere; None where there is none, or it is undecided."""
    ratios = []
    for point in _points(sorted(variables(left) | variables(right))):
        pair = _pair(left, right, _Evaluation(point, True, "e"))
        if pair is None:
            continue
        if pair[0] == 0 or pair[1] == 0:
            return None
        ratios.append(pair[0] / pair[1])
        if not _near(ratios[0], ratios[-1]):
            return None
    return float(ratios[0].real) if len(ratios) >= _MIN_POINTS else None


def real_value(expression: Expression) -> Any:
    """A real constant's value to many digits; ±∞ too. Raises `Undefined` and `Undecided`."""
    if variables(expression):
        raise Undefined
    if isinstance(expression, Apply) and expression.operation == "neg":
        return -real_value(expression.arguments[0])
    if expression == Symbol(INFINITY):
        return _mp.inf
    value = _Evaluation({}, False, "e").of(expression)
    if not _is_real(value):
        raise Undefined
    return _mp.mpf(value.real)


def _identical(left: Expression, right: Expression, log_base: str) -> bool | None:
    names = sorted(variables(left) | variables(right))
    if len(names) > MAX_VARIABLES:
        return None
    if not names:
        pair = _pair(left, right, _Evaluation({}, False, log_base))
        return None if pair is None else _near(*pair)
    if (exact := _identical_exactly(left, right, names)) is not None:
        return exact
    for points, real in ((_points(names), True), (_whole_points(names), True), (_points(names), False)):
        agreed = 0
        for point in points:
            pair = _pair(left, right, _Evaluation(point, real, log_base))
            if pair is None:
                continue
            if not _near(*pair):
                return False
            agreed += 1
        if agreed >= _MIN_POINTS:
            return True
    return None


def _identical_exactly(left: Expression, right: Expression, names: list[str]) -> bool | None:
    """Of arithmetic alone; None where there is more to it."""
    agreed = 0
    for point in _points(names):
        simple = {name: value.limit_denominator(100) for name, value in point.items()}
        try:
            if rational_at(left, simple) != rational_at(right, simple):
                return False
        except NotRational:
            continue
        except TooLarge:
            return None
        agreed += 1
    return True if agreed >= 2 * _MIN_POINTS else None


def _pair(left: Expression, right: Expression, evaluation: _Evaluation) -> tuple[Any, Any] | None:
    """None where one of the two has no value, or none that can be trusted."""
    try:
        return evaluation.of(left), evaluation.of(right)
    except (Undefined, Undecided):
        return None


def _points(names: list[str]) -> Iterator[Point]:
    for first, signs in _PATTERNS:
        values = itertools.islice(itertools.cycle(_MAGNITUDES), first, first + len(names))
        yield {
            name: value * sign + Fraction(index, 97)
            for index, (name, value, sign) in enumerate(zip(names, values, itertools.cycle(signs), strict=False))
        }


def _whole_points(names: list[str]) -> Iterator[Point]:
    for start in (2, 3, 6, 7):
        yield {name: Fraction(start + 2 * index) for index, name in enumerate(names)}


def _near(left: Any, right: Any) -> bool:
    size = max(abs(left), abs(right))
    return bool(size == 0 or abs(left - right) <= size * _CLOSE)


def _is_real(value: Any) -> bool:
    return bool(value.imag == 0)


class _Evaluation:
    """At one point. With `real`, a root or logarithm of what is negative is undefined, else it is complex."""

    def __init__(self, point: Point, real: bool, log_base: str) -> None:
        self._point = point
        self._real = real
        self._log_base = log_base

    def of(self, expression: Expression) -> Any:
        value = self._of(expression)
        magnitude = _mp.mag(value)
        if -MAX_MAGNITUDE <= magnitude <= MAX_MAGNITUDE or value == 0:
            return value
        if _mp.isfinite(value):
            raise Undecided
        raise Undefined

    def _of(self, expression: Expression) -> Any:
        if isinstance(expression, Number):
            return _mpf(expression.value)
        if isinstance(expression, Symbol):
            return self._symbol(expression.name)
        if expression.operation == "add":
            return _sum([self.of(argument) for argument in expression.arguments])
        if expression.operation == "pow" and expression.arguments[0] == Symbol(E):
            return self._exp(self.of(expression.arguments[1]))
        arguments = [self.of(argument) for argument in expression.arguments]
        try:
            return self._applied(expression.operation, arguments)
        except (ZeroDivisionError, ValueError):
            raise Undefined from None

    def _symbol(self, name: str) -> Any:
        if name in self._point:
            return _mpf(self._point[name])
        if name == PI:
            return +_mp.pi
        if name == E:
            return +_mp.e
        if name == IMAGINARY:
            return _mp.mpc(0, 1)
        raise Undefined

    def _applied(self, operation: str, arguments: list[Any]) -> Any:  # noqa: PLR0911 - one line for each operation
        first = arguments[0]
        if operation == "mul":
            return _mp.fprod(arguments)
        if operation == "neg":
            return -first
        if operation == "div":
            return first / arguments[1]
        if operation == "pow":
            return self._power(first, arguments[1])
        if operation == "root":
            return self._root(first, arguments[1])
        if operation in ("log", "ln", "log_base"):
            return self._log(operation, arguments)
        if operation == "exp":
            return self._exp(first)
        if operation == "abs":
            return abs(first)
        if operation == "degree":
            return first * _mp.pi / 180
        if operation in ("factorial", "binomial", "floor", "ceil"):
            return _of_integers(operation, arguments)
        return self._function(operation, first)

    def _function(self, name: str, value: Any) -> Any:
        if name in _PERIODIC and abs(value) > 10**6:
            raise Undecided
        inverse = name in ("arcsin", "arccos")
        if self._real and inverse and _is_real(value) and abs(value) > 1:
            raise Undefined
        if name in ("sinh", "cosh", "tanh", "coth") and abs(value) > 300:
            raise Undecided
        return _rounded(_FUNCTIONS[name](value))

    def _exp(self, exponent: Any) -> Any:
        if abs(exponent) > 10**4:
            raise Undecided
        return _clean(_mp.exp(exponent))

    def _power(self, base: Any, exponent: Any) -> Any:
        if base == 0:
            if not _is_real(exponent) or exponent.real <= 0:
                raise Undefined
            return base
        if _is_real(exponent) and _mp.isint(exponent.real):
            if abs(_mp.log(abs(base))) * abs(exponent) > 10**4:
                raise Undecided
            return _clean(base ** int(exponent.real))
        if _is_real(base) and base.real < 0:
            if (odd := _odd_denominator(exponent)) is not None:
                return _clean((-1) ** odd[0] * (-base.real) ** (_mp.mpf(odd[0]) / odd[1]))
            if self._real:
                raise Undefined
        if abs(_mp.log(abs(base))) * abs(exponent) > 10**4:
            raise Undecided
        return _clean(_mp.exp(exponent * _mp.log(base)))

    def _root(self, value: Any, degree: Any) -> Any:
        if not _is_real(degree) or not _mp.isint(degree.real) or not 1 <= degree.real <= 1_000:
            return self._power(value, 1 / degree)
        order = int(degree.real)
        if _is_real(value) and value.real < 0:
            if order % 2:
                return -_mp.root(-value.real, order)
            if self._real:
                raise Undefined
        return _clean(_mp.sqrt(value) if order == 2 else _mp.root(value, order))

    def _log(self, operation: str, arguments: list[Any]) -> Any:
        value = arguments[-1]
        if value == 0 or (self._real and _is_real(value) and value.real < 0):
            raise Undefined
        logarithm = _mp.log(value)
        if operation == "log_base":
            base = arguments[0]
            if base == 0 or (_is_real(base) and base.real <= 0):
                raise Undefined
            return _rounded(logarithm / _mp.log(base))
        return _rounded(logarithm / _mp.log(10) if operation == "log" and self._log_base == "10" else logarithm)


_PERIODIC = ("sin", "cos", "tan", "cot", "sec", "csc")
_FUNCTIONS: Mapping[str, Callable[[Any], Any]] = {
    "sin": _mp.sin,
    "cos": _mp.cos,
    "tan": _mp.tan,
    "cot": _mp.cot,
    "sec": _mp.sec,
    "csc": _mp.csc,
    "arcsin": _mp.asin,
    "arccos": _mp.acos,
    "arctan": _mp.atan,
    "arccot": _mp.acot,
    "sinh": _mp.sinh,
    "cosh": _mp.cosh,
    "tanh": _mp.tanh,
    "coth": _mp.coth,
}


@lru_cache(maxsize=1024)
def _mpf(value: Fraction) -> Any:
    return _mp.mpf(value.numerator) / value.denominator


def _sum(values: list[Any]) -> Any:
    """What is left of a cancellation is 0, and not its rounding."""
    total = _mp.fsum(values)
    size = max(abs(value) for value in values)
    return _mp.mpf(0) if abs(total) <= size * _GRAIN else _clean(total)


def _clean(value: Any) -> Any:
    """Without a part that is rounding next to the other: a sum of conjugates is real."""
    if not isinstance(value, _mp.mpc):
        return value
    if abs(value.imag) <= abs(value.real) * _GRAIN:
        return value.real
    return _mp.mpc(0, value.imag) if abs(value.real) <= abs(value.imag) * _GRAIN else value


def _rounded(value: Any) -> Any:
    """Of a function whose values are near 1: `cos(π/2)` is 0."""
    return _mp.mpf(0) if abs(value) <= _GRAIN else _clean(value)


def _odd_denominator(exponent: Any) -> tuple[int, int] | None:
    """The fraction with a small odd denominator that the exponent is: a real root of what is negative has one."""
    if not _is_real(exponent):
        return None
    for denominator in (3, 5, 7, 9):
        scaled = exponent.real * denominator
        nearest = _mp.nint(scaled)
        if abs(scaled - nearest) < _CLOSE:
            return int(nearest), denominator
    return None


def _of_integers(operation: str, arguments: list[Any]) -> Any:
    first = arguments[0]
    if not _is_real(first):
        raise Undefined
    if operation in ("floor", "ceil"):
        return _mp.floor(first.real) if operation == "floor" else _mp.ceil(first.real)
    if operation == "factorial":
        if not _mp.isint(first.real) or first.real < 0:
            raise Undefined
        if first.real > 200:
            raise Undecided
        return _mp.mpf(math.factorial(int(first.real)))
    lower = arguments[1]
    if not _is_real(lower) or not _mp.isint(lower.real) or not 0 <= lower.real <= 50:
        raise Undefined
    steps = [(first - step) / (step + 1) for step in range(int(lower.real))]
    return _mp.fprod(steps)
