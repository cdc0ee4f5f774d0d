"""Tokens → one expression, by recursive descent; what is left over is handed back for whoever reads units.

Conventions: `1\\frac{1}{2}` and `1 1/2` are mixed numbers; `\\frac12` is a half; `x^10` has the exponent 10; a function
without brackets takes the product that follows, up to the next function. Depth is bounded by `limits.py` beforehand.
"""

from __future__ import annotations

from fractions import Fraction

from posttrain.verifiers.math.expression import (
    IMAGINARY,
    INFINITY,
    PI,
    E,
    Expression,
    Number,
    Symbol,
    apply,
    negative,
    number,
)
from posttrain.verifiers.math.tokens import Token, Unreadable
from posttrain.verifiers.math.words import FUNCTIONS

_END = Token("end", "")
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_FENCES = {"lfloor": ("rfloor", "floor"), "lceil": ("rceil", "ceil")}
_SAME_FUNCTIONS = {"asin": "arcsin", "acos": "arccos", "atan": "arctan"}
_INVERSES = {"sin": "arcsin", "cos": "arccos", "tan": "arctan", "cot": "arccot"}
_STARTS = FUNCTIONS | {"frac", "pi", "infty", "lfloor", "lceil", "binom"}
_TIMES = ("times", "cdot", "*")
_MAX_SHIFT = 1_000


def parse(tokens: list[Token]) -> tuple[Expression, list[Token]]:
    """The longest expression at the beginning, and the rest. Raises `Unreadable`."""
    parser = _Parser(tokens)
    return parser.expression(), parser.rest()


def parse_all(tokens: list[Token]) -> Expression:
    expression, rest = parse(tokens)
    if rest:
        raise Unreadable(f"{rest[0].text!r} is not understood")
    return expression


class _Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = list(tokens)
        self._at = 0
        self._bars = 0
        """Absolute values that are open."""

    def rest(self) -> list[Token]:
        return self._tokens[self._at :]

    def expression(self) -> Expression:
        sign = self._sign()
        terms = [self._signed(sign, self.term())]
        while (sign := self._sign()) is not None:
            if sign in ("pm", "mp"):
                terms = [apply(sign, terms[0] if len(terms) == 1 else apply("add", *terms), self.term())]
            else:
                terms.append(self._signed(sign, self.term()))
        return terms[0] if len(terms) == 1 else apply("add", *terms)

    def term(self) -> Expression:
        left = self.factor()
        while True:
            operator = self._peek()
            if self._is(operator, *_TIMES):
                self._at += 1
                left = _product(left, self._unary())
            elif self._is(operator, "/", "div"):
                self._at += 1
                left = _quotient(left, self._unary())
            elif self._continues(operator):
                left = _product(left, self.factor())
            else:
                return left

    def factor(self) -> Expression:
        value = self._primary()
        while True:
            token, after = self._peek(), self._peek(1)
            if token.kind == "!":
                if after.kind == "!":
                    raise Unreadable("a double factorial is not read")
                self._at += 1
                value = apply("factorial", value)
            elif token.kind == "%":
                self._at += 1
                value = Number(value.value / 100) if isinstance(value, Number) else apply("div", value, number(100))
            elif token.kind == "^" and self._degree_length():
                if self._temperature_follows():
                    return value
                self._at += self._degree_length()
                value = apply("degree", value)
            elif token.kind == "^":
                self._at += 1
                return apply("pow", value, self._exponent())
            else:
                return value

    def _signed(self, sign: str | None, term: Expression) -> Expression:
        if sign in ("pm", "mp"):
            return apply(sign, term)
        return negative(term) if sign == "-" else term

    def _sign(self) -> str | None:
        token = self._peek()
        if self._is(token, "+", "-", "pm", "mp"):
            self._at += 1
            return token.text
        return None

    def _unary(self) -> Expression:
        sign = self._sign()
        if sign in ("pm", "mp"):
            raise Unreadable("a sign ± within a product is not read")
        return self._signed(sign, self.factor())

    def _exponent(self) -> Expression:
        if self._peek().kind == "{":
            exponent = self._group()
            if self._peek().kind == "^":
                raise Unreadable("an exponent has two")
            return exponent
        return self._unary()

    def _primary(self) -> Expression:  # noqa: PLR0911 - one line for each case
        token = self._next()
        if token.kind == "number":
            return self._number(token)
        if token.kind == "symbol" or (token.kind == "word" and len(token.text) == 1):
            return self._symbol(token.text)
        if token.kind in _CLOSING:
            self._at -= 1
            return self._group()
        if token.kind == "|":
            return self._absolute()
        if token.kind == "word" and token.text.lower() in ("infinity", "inf"):
            return Symbol(INFINITY)
        if token.kind == "word" and token.text.lower() in ("negative", "minus"):
            return negative(self.factor())
        if token.kind in ("command", "word"):
            return self._command(token.text)
        raise Unreadable(f"{token.text!r} is not understood")

    def _number(self, token: Token) -> Expression:
        if token.value is None:
            raise Unreadable(f"{token.text!r} is no number")
        value, following = token.value, self._peek()
        if value.denominator == 1 and token.text.isdigit():
            if self._is(following, "frac"):
                before, tokens = self._at, list(self._tokens)
                self._at += 1
                upper, lower = self._argument(), self._argument()
                if isinstance(upper, Number) and isinstance(lower, Number) and _proper(upper.value, lower.value):
                    return Number(value + upper.value / lower.value)
                self._at, self._tokens = before, tokens
            elif following.kind == "number" and following.spaced and self._peek(1).kind == "/":
                upper_part, lower_part = following.value, self._peek(2).value
                if upper_part is None or lower_part is None or not _proper(upper_part, lower_part):
                    raise Unreadable("two numbers stand side by side")
                self._at += 3
                return Number(value + upper_part / lower_part)
        if following.kind == "_":
            raise Unreadable("a number has a subscript that is no base")
        return Number(value)

    def _symbol(self, name: str) -> Expression:
        if name in (E, IMAGINARY) and self._peek().kind != "_":
            return Symbol(name)
        while self._peek().kind in ("_", "'"):
            if self._next().kind == "'":
                name += "'"
                continue
            name += f"_{self._raw_argument()}"
        return Symbol(name)

    def _raw_argument(self) -> str:
        token = self._next()
        if token.kind != "{":
            return token.text
        text, depth = "", 1
        while depth:
            token = self._next()
            depth += {"{": 1, "}": -1, "end": -depth}.get(token.kind, 0)
            text += token.text if token.kind not in ("{", "}") else ""
        return text

    def _group(self) -> Expression:
        opening = self._next()
        bars, self._bars = self._bars, 0
        inner = self.expression()
        self._bars = bars
        self._expect(_CLOSING[opening.kind])
        if opening.kind != "[" and self._peek().kind == "_":
            return self._based(inner)
        return inner

    def _based(self, digits: Expression) -> Expression:
        """`(101)_2`, and `{101}_2` of a `\\text{101}_2`."""
        self._next()
        base = self._raw_argument()
        plain = isinstance(digits, Number) and digits.value.denominator == 1 and digits.value >= 0
        if not plain or not base.isdigit() or not 2 <= int(base) <= 10:
            raise Unreadable("a bracket has a subscript that is no base")
        assert isinstance(digits, Number)
        return in_base(digits.value, int(base))

    def _absolute(self) -> Expression:
        self._bars += 1
        inner = self.expression()
        self._bars -= 1
        self._expect("|")
        return apply("abs", inner)

    def _command(self, name: str) -> Expression:  # noqa: PLR0911 - one line for each case
        if name == "pi":
            return Symbol(PI)
        if name == "infty":
            return Symbol(INFINITY)
        if name == "frac":
            return _quotient(self._argument(), self._argument())
        if name == "binom":
            return apply("binomial", self._argument(), self._argument())
        if name == "sqrt":
            return self._root()
        if name in _FENCES:
            closing, operation = _FENCES[name]
            inner = self.expression()
            if not self._is(self._next(), closing):
                raise Unreadable(f"\\{name} is not closed")
            return apply(operation, inner)
        if name in FUNCTIONS:
            return self._function(_SAME_FUNCTIONS.get(name, name))
        raise Unreadable(f"{name!r} is not understood")

    def _root(self) -> Expression:
        degree: Expression = number(2)
        if self._peek().kind == "[":
            degree = self._group()
        return apply("root", self._argument(), degree)

    def _function(self, name: str) -> Expression:
        power: Expression | None = None
        base: Expression | None = None
        for _ in range(2):
            if self._peek().kind == "^" and power is None:
                self._at += 1
                power = self._exponent()
            elif self._peek().kind == "_" and name == "log" and base is None:
                self._at += 1
                base = self._argument()
        if power == number(-1):
            if name not in _INVERSES:
                raise Unreadable(f"the inverse of {name} is not read")
            name, power = _INVERSES[name], None
        argument = self._function_argument()
        if name == "lg":
            name, base = "log", number(10)
        value = apply(name, argument) if base is None else apply("log_base", base, argument)
        return value if power is None else apply("pow", value, power)

    def _function_argument(self) -> Expression:
        token = self._peek()
        if token.kind in _CLOSING:
            return self._group()
        if token.kind == "|":
            return self.factor()
        argument = self._unary()
        while self._continues(self._peek()) and self._peek().text not in FUNCTIONS - {"sqrt"}:
            if self._peek().kind == "(":
                break
            argument = _product(argument, self.factor())
        while self._peek().kind == "/" and self._peek(1).kind == "number":  # `\sin \pi/6`
            self._at += 1
            argument = _quotient(argument, self.factor())
        return argument

    def _argument(self) -> Expression:
        """Of a command: a group, or one character, or for a root the whole number."""
        token = self._peek()
        if token.kind in ("{", "("):
            return self._group()
        if token.kind == "number" and token.text.isdigit() and len(token.text) > 1:
            self._tokens[self._at] = Token("number", token.text[1:], False, Fraction(token.text[1:]))
            return number(int(token.text[0]))
        if token.kind in ("number", "symbol") or self._is(token, "pi", "frac", "sqrt", "infty"):
            return self._primary()
        raise Unreadable(f"an argument is missing before {token.text!r}")

    def _continues(self, token: Token) -> bool:
        """Whether a product goes on without a sign."""
        if token.kind == "number":
            return False
        if token.kind in ("symbol", "(", "{", "["):
            return not self._opens_words(token) and token.kind != "["
        if token.kind == "word" and len(token.text) == 1:
            return False
        if token.kind == "|":
            return self._bars == 0
        return token.kind == "command" and token.text in _STARTS

    def _opens_words(self, token: Token) -> bool:
        return token.kind in ("{", "(") and self._peek(1).kind == "word" and self._peek(1).text.lower() != "infinity"

    def _degree_length(self) -> int:
        """Tokens of `^\\circ` or `^{\\circ}` here; 0 where there is none."""
        if self._is(self._peek(1), "circ"):
            return 2
        if self._peek(1).kind == "{" and self._is(self._peek(2), "circ") and self._peek(3).kind == "}":
            return 4
        return 0

    def _temperature_follows(self) -> bool:
        following = [self._peek(self._degree_length() + step) for step in range(2)]
        return any(token.text in ("C", "F") for token in following)

    def _peek(self, ahead: int = 0) -> Token:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else _END

    def _next(self) -> Token:
        token = self._peek()
        self._at += 1
        if token is _END:
            raise Unreadable("something is missing at the end")
        return token

    def _expect(self, kind: str) -> None:
        if self._next().kind != kind:
            raise Unreadable(f"a {kind!r} is missing")

    @staticmethod
    def _is(token: Token, *names: str) -> bool:
        return token.text in names and token.kind in ("command", token.text)


def in_base(digits: Fraction, base: int) -> Expression:
    """The number whose digits are those of `digits`. Raises `Unreadable` for a digit that `base` has not."""
    try:
        return number(int(str(digits.numerator), base))
    except ValueError:
        raise Unreadable(f"{digits} has digits that base {base} has not") from None


def _proper(upper: Fraction, lower: Fraction) -> bool:
    return upper.denominator == lower.denominator == 1 and 0 < upper < lower


def _product(left: Expression, right: Expression) -> Expression:
    """A number times a power of ten is one number."""
    if isinstance(left, Number) and not isinstance(right, (Number, Symbol)) and right.operation == "pow":
        base, exponent = right.arguments
        ten_to = exponent.value if base == number(10) and isinstance(exponent, Number) else None
        if ten_to is not None and ten_to.denominator == 1 and abs(ten_to) <= _MAX_SHIFT:
            return Number(left.value * Fraction(10) ** ten_to.numerator)
    return apply("mul", left, right)


def _quotient(upper: Expression, lower: Expression) -> Expression:
    return apply("div", upper, lower)
