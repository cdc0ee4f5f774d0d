"""Plain data, and its one text form: what may leave a sandbox, and nothing else.

Plain are None, bool, int, finite float, str, list, tuple and dict with str keys, of exactly these types (attack 2:
subclasses lie). The form is JSON, where a tuple is `{"tuple": [...]}` and a dict is `{"dict": {...}}`, so that
nothing is lost. This file runs on both sides of the wall and therefore imports next to nothing; reading the form
back is the host's affair alone (`decode.py`).
"""

import math
from _json import encode_basestring_ascii

MAX_DEPTH = 32
MAX_CHARACTERS = 1 << 20
MAX_INT_BITS = 8192
"""Below the 4300 digits at which CPython refuses to convert."""


class NotPlainError(Exception):
    """The value is no plain data; the message says why."""


def encode(value: object) -> str:
    """The value as one line of ASCII. Raises `NotPlainError`, also for what is too deep or too large."""
    parts: list[str] = []
    _write(value, parts, [0], 0)
    return "".join(parts)


def _write(value: object, parts: list[str], size: list[int], depth: int) -> None:
    kind = type(value)
    if kind is list or kind is tuple or kind is dict:
        if depth == MAX_DEPTH:
            raise NotPlainError(f"nested deeper than {MAX_DEPTH}")
        _write_container(value, parts, size, depth + 1)
        return
    text = _scalar(value)
    parts.append(text)
    _count(len(text), size)


def _write_container(value: object, parts: list[str], size: list[int], depth: int) -> None:
    if type(value) is dict:
        parts.append('{"dict":{')
        for position, (key, item) in enumerate(list(value.items())):
            if type(key) is not str:
                raise NotPlainError("a dict key that is not a str")
            parts.append("," if position else "")
            _write(key, parts, size, depth)
            parts.append(":")
            _write(item, parts, size, depth)
        parts.append("}}")
    elif type(value) is list or type(value) is tuple:
        parts.append("[" if type(value) is list else '{"tuple":[')
        for position, item in enumerate(value):
            parts.append("," if position else "")
            _write(item, parts, size, depth)
        parts.append("]" if type(value) is list else "]}")
    _count(12, size)


def _count(characters: int, size: list[int]) -> None:
    size[0] += characters + 1
    if size[0] > MAX_CHARACTERS:
        raise NotPlainError(f"larger than {MAX_CHARACTERS} characters")


def _scalar(value: object) -> str:
    if value is None:
        return "null"
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is int:
        if value.bit_length() > MAX_INT_BITS:
            raise NotPlainError(f"an int of more than {MAX_INT_BITS} bits")
        return int.__repr__(value)
    if type(value) is float:
        if not math.isfinite(value):
            raise NotPlainError("a float that is not finite")
        return float.__repr__(value)
    if type(value) is str:
        if len(value) > MAX_CHARACTERS:
            raise NotPlainError(f"a str longer than {MAX_CHARACTERS} characters")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise NotPlainError("a str that is no valid Unicode") from None
        return encode_basestring_ascii(value)
    raise NotPlainError(f"a value of type {type(value).__name__!s:.80}")
