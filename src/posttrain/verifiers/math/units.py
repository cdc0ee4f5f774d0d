"""What stands behind a number: a unit, or words that multiply it. A unit is a product of powers of base units."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction

from posttrain.verifiers.math.tokens import Token, Unreadable
from posttrain.verifiers.math.words import LETTER_UNITS, NO_UNITS, RATES, SCALES, UNITS, canonical

_MAX_WORDS = 6
_POWERS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
_CURRENCIES = ("dollar", "euro", "pound")
_SKIPPED = ("of", "the", "a", "an", "total", "each", "in", "all", "altogether", "away", "long", "tall", "wide", "old")


@dataclass(frozen=True)
class Measure:
    """`powers` of base units, and how many of them one of this unit is."""

    powers: tuple[tuple[str, int], ...]
    factor: Fraction


@dataclass
class Suffix:
    """What follows a number."""

    scale: Fraction = Fraction(1)
    measure: Measure | None = None
    base: int | None = None


@dataclass
class _Unit:
    powers: Counter[str] = field(default_factory=Counter)
    factor: Fraction = Fraction(1)
    named: bool = False

    def add(self, name: str, power: int) -> None:
        if name in RATES:
            upper, lower = RATES[name]
            self.add(upper, power)
            self.add(lower, -power)
            return
        base, dimension, factor = UNITS.get(canonical(name), (canonical(name), 1, Fraction(1)))
        self.named = True
        self.factor *= factor**power
        if dimension:
            self.powers[base] += dimension * power

    def measure(self) -> Measure | None:
        powers = tuple(sorted((name, power) for name, power in self.powers.items() if power))
        return Measure(powers, self.factor) if powers else None


def take_currency(tokens: list[Token]) -> tuple[list[Token], Measure | None]:
    """A currency's sign before the number, or before its sign's digits: `\\$5`, `-\\$5`."""
    for at in (0, 1):
        if at < len(tokens) and tokens[at].kind == "command" and tokens[at].text in _CURRENCIES:
            if at == 1 and tokens[0].kind not in ("-", "+"):
                continue
            name = tokens[at].text
            return tokens[:at] + tokens[at + 1 :], Measure(((name if name != "pound" else "£", 1),), Fraction(1))
    return tokens, None


def read_suffix(tokens: list[Token]) -> Suffix:  # noqa: PLR0912 - one branch for each case
    """Raises `Unreadable` for what is neither a unit nor a factor: "7 or so", "7 squared", "7 (about)"."""
    suffix, unit = Suffix(), _Unit()
    waiting = [token for token in tokens if token.kind not in ("{", "}")]
    sign, power, count = 1, 1, 0
    while waiting:
        token = waiting.pop(0)
        word = token.text.lower()
        count += 1
        if count > 4 * _MAX_WORDS:
            raise Unreadable("too many words follow a number")
        if token.kind == "word" and word in SCALES and not unit.named:
            suffix.scale *= SCALES[word]
        elif word in ("percent", "percentage") and not unit.named:
            suffix.scale /= 100
        elif word == "base" and len(waiting) == 1 and not unit.named:
            suffix.base = _base(waiting.pop())
        elif token.kind == "/" or word == "per":
            sign = -1
        elif token.kind == "command" and token.text in ("cdot", "times"):
            continue
        elif token.kind == "^" and waiting and waiting[0].text == "circ":
            waiting.pop(0)
            unit.add({"C": "celsius", "F": "fahrenheit"}.get(waiting.pop(0).text, "?") if waiting else "degree", 1)
        elif word in _POWERS and waiting:
            power = _POWERS[word]
        elif word in _SKIPPED and token.kind == "word" and (waiting or unit.named) and not _power_follows(waiting):
            continue
        elif token.kind == "command" and token.text in _CURRENCIES:
            unit.add(token.text, 1)
        elif _names_unit(token):
            unit.add(token.text, sign * power * _exponent(waiting))
            sign, power = 1, 1
        else:
            raise Unreadable(f"{token.text!r} behind a number is not understood")
    suffix.measure = unit.measure()
    return suffix


def _names_unit(token: Token) -> bool:
    if token.kind == "symbol":
        return token.text in LETTER_UNITS and token.spaced
    return token.kind == "word" and token.text.lower() not in NO_UNITS and not token.text.lower().endswith("ths")


def _power_follows(waiting: list[Token]) -> bool:
    return bool(waiting) and waiting[0].kind == "^"


def _exponent(waiting: list[Token]) -> int:
    if not waiting or waiting[0].kind != "^" or (len(waiting) > 1 and waiting[1].text == "circ"):
        return 1
    waiting.pop(0)
    sign = -1 if waiting and waiting[0].kind == "-" else 1
    if sign < 0:
        waiting.pop(0)
    if not waiting or waiting[0].value is None or waiting[0].value.denominator != 1 or not 1 <= waiting[0].value <= 9:
        raise Unreadable("a unit's exponent is no small integer")
    value = waiting.pop(0).value
    assert value is not None
    return sign * value.numerator


def _base(token: Token) -> int:
    named = {"two": 2, "eight": 8, "ten": 10, "sixteen": 16}.get(token.text.lower())
    base = named or (int(token.text) if token.text.isdigit() and len(token.text) < 3 else 0)
    if not 2 <= base <= 10:
        raise Unreadable(f"there is no base {token.text!r}")
    return base
