"""Words that stand in answers: which are units and what of, which are said before an answer, which are the same."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

_LENGTHS = {
    "mm": "1/1000",
    "cm": "1/100",
    "dm": "1/10",
    "m": "1",
    "km": "1000",
    "inch": "0.0254",
    "foot": "0.3048",
    "yard": "0.9144",
    "mile": "1609.344",
}
_TIMES = {"s": "1", "minute": "60", "hour": "3600", "day": "86400", "week": "604800", "ms": "1/1000"}
_MASSES = {"mg": "1/1000000", "g": "1/1000", "kg": "1", "pound": "0.45359237", "ounce": "0.028349523125"}
_OTHERS = {
    "L": ("m", 3, "1/1000"),
    "mL": ("m", 3, "1/1000000"),
    "dollar": ("dollar", 1, "1"),
    "cent": ("dollar", 1, "1/100"),
    "degree": ("degree", 1, "1"),
    "unit": ("", 0, "1"),
}

Unit = tuple[tuple[str, int], ...]
"""Powers of base units, sorted: `(("m", 1), ("s", -1))`."""

UNITS: Mapping[str, tuple[str, int, Fraction]] = {
    **{name: ("m", 1, Fraction(factor)) for name, factor in _LENGTHS.items()},
    **{name: ("s", 1, Fraction(factor)) for name, factor in _TIMES.items()},
    **{name: ("kg", 1, Fraction(factor)) for name, factor in _MASSES.items()},
    **{name: (base, power, Fraction(factor)) for name, (base, power, factor) in _OTHERS.items()},
}
"""Name → base unit, its power, and how many of it. A unit that is not here is its own base unit."""

_SAME = {
    "mm": "millimeter millimeters millimetre millimetres",
    "cm": "centimeter centimeters centimetre centimetres",
    "dm": "decimeter decimeters decimetre decimetres",
    "m": "meter meters metre metres",
    "km": "kilometer kilometers kilometre kilometres kms",
    "inch": "inches in",
    "foot": "feet ft",
    "yard": "yards yd yds",
    "mile": "miles mi",
    "s": "second seconds sec secs",
    "ms": "millisecond milliseconds",
    "minute": "minutes min mins",
    "hour": "hours h hr hrs",
    "day": "days",
    "week": "weeks wk wks",
    "mg": "milligram milligrams",
    "g": "gram grams",
    "kg": "kilogram kilograms kgs",
    "pound": "pounds lb lbs",
    "ounce": "ounces oz",
    "L": "l liter liters litre litres",
    "mL": "ml milliliter milliliters millilitre millilitres",
    "dollar": "dollars usd",
    "cent": "cents",
    "degree": "degrees deg degs",
    "unit": "units",
    "people": "person persons",
    "child": "children",
}
SYNONYMS: Mapping[str, str] = {other: name for name, others in _SAME.items() for other in others.split()}
"""Other name → the name of a unit. Plurals in -s of units that are not here need no entry."""

SHORT_UNITS = frozenset(
    "mm cm dm km in ft yd mi sec min hr hrs mg kg lb lbs oz mL ml ms mph kph deg rad Hz kHz kW kWh Pa kPa mol".split()
)
"""Two or three letters that are a unit behind a number, and no product of variables."""
LETTER_UNITS = frozenset("mgshLlJNWVKACFx") - {"x"}
"""One letter that is a unit where it is set apart from the number before it."""
RATES: Mapping[str, tuple[str, str]] = {"mph": ("mile", "hour"), "kph": ("km", "hour"), "kmh": ("km", "hour")}

SCALES: Mapping[str, int] = {
    "hundred": 100,
    "thousand": 1_000,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
    "dozen": 12,
}

NO_UNITS = frozenset(
    "squared cubed factorial half halves third thirds quarter quarters fourth fourths fifth fifths sixth sixths"
    " tenth tenths"
    " hundredth hundredths thousandth thousandths times plus minus over mod modulo not no if when for where is"
    " are or either"
    " than more less fewer at least most to up about around roughly approximately approx nearly almost maybe perhaps"
    " possibly probably exactly and but one two three four five six seven eight nine ten eleven twelve twenty tens ones"
    " divided multiplied by through between remainder root power percent negative positive minus infinity infinite"
    " unknown wrong incorrect true false yes".split()
)
"""Words behind a number that change it, doubt it, or say that there is something else."""
HEDGES = frozenset(
    "maybe perhaps possibly probably approximately approx about around roughly nearly almost either".split()
)
PREAMBLE = frozenset(
    "the final answer answers ans is are result value equals equal to solution solutions therefore thus hence total"
    " option choice correct only it its".split()
)
"""Said before an answer without being part of it."""

_SAME_TEXTS = {
    "does not exist": "dne|doesnt exist|do not exist|not exist|limit does not exist|the limit does not exist",
    "no solution": "no solutions|none|no answer|there is no solution|there are no solutions|has no solution|nosolution"
    "|empty set|the empty set|no real solution|no real solutions",
    "all real numbers": "all reals|all real|all real number|real numbers|the real numbers|reals|any real number"
    "|every real number|the set of all real numbers|all real values",
    "infinitely many": "infinite|infinitely many solutions|infinite solutions|infinite number of solutions",
    "undefined": "not defined|undef",
    "yes": "true",
    "no": "false",
}
SAME_TEXTS: Mapping[str, str] = {other: text for text, others in _SAME_TEXTS.items() for other in others.split("|")}

FUNCTIONS = frozenset(
    "sin cos tan cot sec csc arcsin arccos arctan arccot sinh cosh tanh coth ln log lg exp sqrt abs asin acos"
    " atan floor ceil".split()
)
GREEK = frozenset(
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi omicron rho"
    " varrho sigma"
    " tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega ell hbar".split()
)
SHORT_WORDS = frozenset(
    "yes no dne nan inf odd the is are not or and one two six ten red blue am pm all any none mon tue wed thu"
    " fri sat sun"
    " true per each base it so if by to at".split()
)
"""Up to three letters that are a word outside of `\\text`, and no product of variables."""


def canonical(word: str) -> str:
    """One name for a unit: `metres` is `m`, `apples` is `apple`."""
    if word in UNITS:
        return word
    lower = word.lower()
    if lower in SYNONYMS:
        return SYNONYMS[lower]
    if lower in UNITS:
        return lower
    return lower.removesuffix("s") if len(lower) > 3 and not lower.endswith("ss") else lower
