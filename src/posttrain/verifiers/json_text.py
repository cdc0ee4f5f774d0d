"""Strict JSON from untrusted text: one value, no duplicate keys, finite numbers, bounded nesting and digits.

Nothing is repaired: single quotes, comments, trailing commas and text around the value are refused.
"""

from __future__ import annotations

import json
import math
import re

from posttrain.core.types import Json
from posttrain.verifiers.final_answer import Refused
from posttrain.verifiers.flags import Flag

MAX_DEPTH = 32
MAX_NUMBER_CHARACTERS = 40

_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


class _NotStrictError(ValueError):
    """What JSON's grammar lets pass and we do not; `flag` says which."""

    def __init__(self, reason: str, flag: Flag) -> None:
        super().__init__(reason)
        self.flag = flag


def read_json(text: str) -> Json | Refused:
    """The one JSON value that `text` is. Its length is the caller's to bound; the work is linear in it."""
    if _depth(text) > MAX_DEPTH:
        return Refused(f"the JSON is nested deeper than {MAX_DEPTH}", (Flag.TOO_DEEP,))
    try:
        return json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_finite,
            parse_constant=_constant,
        )
    except _NotStrictError as error:
        return Refused(str(error), (error.flag,))
    except json.JSONDecodeError as error:
        return Refused(f"the reply is not JSON: {error.msg} (line {error.lineno})", (Flag.NOT_JSON,))


def same_json(expected: Json, value: Json) -> bool:
    """Equal as JSON: 1 and 1.0 are one number, true is none, the order of keys does not count, that of items does."""
    if isinstance(expected, bool) or isinstance(value, bool):
        return expected is value
    if isinstance(expected, int | float) and isinstance(value, int | float):
        return expected == value
    if type(expected) is not type(value):
        return False
    if isinstance(expected, list):
        return len(expected) == len(value) and all(map(same_json, expected, value))
    if isinstance(expected, dict):
        return expected.keys() == value.keys() and all(same_json(expected[key], value[key]) for key in expected)
    return bool(expected == value)


def _depth(text: str) -> int:
    depth = deepest = 0
    for match in _STRING_OR_BRACKET.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(match.group(), 0)
        deepest = max(deepest, depth)
    return deepest


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _NotStrictError("an object of the JSON has a key twice", Flag.DUPLICATE_KEYS)
    return members


def _constant(name: str) -> Json:
    raise _NotStrictError(f"the JSON holds {name}, which is no JSON number", Flag.NOT_FINITE)


def _integer(digits: str) -> int:
    if len(digits) > MAX_NUMBER_CHARACTERS:
        raise _NotStrictError(f"a number of the JSON is longer than {MAX_NUMBER_CHARACTERS} characters", Flag.TOO_LONG)
    return int(digits)


def _finite(digits: str) -> float:
    number = float(digits)
    if len(digits) > MAX_NUMBER_CHARACTERS:
        raise _NotStrictError(f"a number of the JSON is longer than {MAX_NUMBER_CHARACTERS} characters", Flag.TOO_LONG)
    if not math.isfinite(number):
        raise _NotStrictError("a number of the JSON is too large to be finite", Flag.NOT_FINITE)
    return number
