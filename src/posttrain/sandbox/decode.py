"""Plain data read back: the inverse of `plain.encode`, for text that somebody else may have written."""

from __future__ import annotations

import math
from typing import Any

from posttrain.core.types import Json
from posttrain.sandbox.plain import MAX_DEPTH


class MalformedError(Exception):
    """What came is not what was agreed; the message says what it is."""


def decode(value: Any, what: str, depth: int = 0) -> Json:
    """`value` as `json.loads` gives it. `what` it is called in a sentence."""
    if depth > MAX_DEPTH:
        raise MalformedError(f"{what} nested deeper than {MAX_DEPTH}")
    match value:
        case float() if not math.isfinite(value):
            raise MalformedError(f"{what} with a float that is not finite")
        case None | bool() | int() | float():
            return value
        case str():
            if value.isascii() or _is_unicode(value):
                return value
            raise MalformedError(f"{what} with a str that is no valid Unicode")
        case list():
            return [decode(item, what, depth + 1) for item in value]
        case {"tuple": list(items)} if len(value) == 1:
            return tuple(decode(item, what, depth + 1) for item in items)
        case {"dict": dict(items)} if len(value) == 1:
            return {decode(key, what, depth): decode(item, what, depth + 1) for key, item in items.items()}
    raise MalformedError(f"{what} that is no plain data")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
