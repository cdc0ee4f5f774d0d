"""JSON Lines as people write them: every line with its place, and why one of them cannot be used.

A blank line is no row, and a byte order mark is no content. It knows no keys: what a row must hold is its reader's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from posttrain.core.errors import UserError
from posttrain.core.types import Json

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class UnusableRowError(ValueError):
    """Why one row cannot be used."""


def lines(path: Path) -> Iterator[tuple[str, bytes]]:
    """Each line with its place, `FILE:LINE` counted from 1. Raises `UserError` for a file that cannot be read."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                text = line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line
                if text.strip():
                    yield f"{path}:{number}", text
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from error


def json_object(line: bytes) -> Mapping[str, Json]:
    """Raises `UnusableRowError`."""
    try:
        content = json.loads(line.decode())
    except UnicodeDecodeError:
        raise UnusableRowError("it is not text in UTF-8") from None
    except json.JSONDecodeError as error:
        raise UnusableRowError(f"it is not JSON: {error.msg} at column {error.colno}") from None
    except (ValueError, RecursionError) as error:
        raise UnusableRowError(f"it cannot be read as JSON: {error}") from None
    if not isinstance(content, dict):
        raise UnusableRowError(f"it is JSON, but no object: {short(content)}")
    return content


def short(value: Json) -> str:
    """A value as a sentence may quote it."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
