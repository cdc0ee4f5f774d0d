"""When two texts are the same text, and which characters a reader would not see."""

from __future__ import annotations

import re
import unicodedata
from typing import Literal

UnicodeForm = Literal["NFC", "NFKC"]

_BLANK_LETTERS = "\u115f\u1160\u3164\uffa0\u2800"
"""Letters and symbols, by their category, that show nothing."""
_SPACES = re.compile(r"\s+")


def without_invisible(text: str) -> str:
    """`text` without zero-width, formatting and control characters; white space stays."""
    return "".join(character for character in text if not _is_invisible(character))


def has_invisible(text: str) -> bool:
    return any(map(_is_invisible, text))


def _is_invisible(character: str) -> bool:
    if character.isascii():
        return not (character.isprintable() or character.isspace())
    return (
        unicodedata.category(character) in ("Cf", "Cc", "Co", "Cn", "Cs")
        or character in _BLANK_LETTERS
        or "\ufe00" <= character <= "\ufe0f"
    )


def normal_text(text: str, form: UnicodeForm = "NFC", *, ignore_case: bool = False) -> str:
    """One text for all that count as the same: composed by `form`, runs of white space as one space, none around."""
    text = _SPACES.sub(" ", unicodedata.normalize(form, text)).strip()
    # Folding may leave what composes again.
    return unicodedata.normalize(form, text.casefold()) if ignore_case else text
