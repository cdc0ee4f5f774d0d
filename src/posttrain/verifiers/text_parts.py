"""What a text is made of: its words, sentences, paragraphs, bullets, sections, scripts. Counts that no reader disputes.

Pure functions on text without invisible characters; the work is linear in its length.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_SENTENCE_END = re.compile(r"(?<=[.!?…。！？])[\"'”’)\]]*(?:\s+|$)|(?<=[。！？])")
_BLANK_LINES = re.compile(r"\n[ \t]*\n\s*")
_BULLET = re.compile(r"^[ \t]{0,8}[-*•+][ \t]+\S", re.MULTILINE)
_NUMBERED = re.compile(r"^[ \t]{0,8}[0-9]{1,3}[.)][ \t]+\S", re.MULTILINE)
_HEADING = re.compile(r"^#{1,6}[ \t]+\S", re.MULTILINE)
_PLACEHOLDER = re.compile(r"\[[^\[\]\n]{1,80}\]")
_HIGHLIGHT = re.compile(r"\*\*([^*\n]+)\*\*|(?<!\*)\*([^*\n]+)\*(?!\*)")
_CODE_FENCE = re.compile(r"^ {0,3}```", re.MULTILINE)


def words(text: str) -> list[str]:
    """Runs of letters and digits; an apostrophe or hyphen inside belongs to its word."""
    return _WORD.findall(text)


def sentences(text: str) -> list[str]:
    """Pieces that have a word, split behind `.`, `!`, `?` and their like where white space follows."""
    return [piece for piece in _SENTENCE_END.split(text) if _WORD.search(piece)]


def paragraphs(text: str) -> list[str]:
    """Pieces that have a word, split at blank lines."""
    return [piece.strip() for piece in _BLANK_LINES.split(text) if _WORD.search(piece)]


def lines(text: str) -> list[str]:
    """Lines that are not blank."""
    return [line.strip() for line in text.splitlines() if line.strip()]


def num_bullets(text: str) -> int:
    return len(_BULLET.findall(text))


def num_numbered(text: str) -> int:
    """Lines that begin as `1.` or `1)`."""
    return len(_NUMBERED.findall(text))


def num_headings(text: str) -> int:
    """Markdown headings."""
    return len(_HEADING.findall(text))


def num_placeholders(text: str) -> int:
    """`[name]` and the like, each counted once."""
    return len(set(_PLACEHOLDER.findall(text)))


def num_highlights(text: str) -> int:
    """`*so*` or `**so**`, each counted once."""
    found = {bold or italic for bold, italic in _HIGHLIGHT.findall(text)}
    return sum(words(inside) != [] and inside == inside.strip() for inside in found)


def num_code_blocks(text: str) -> int:
    """Closed fenced blocks; 0 where one is left open."""
    fences = len(_CODE_FENCE.findall(text))
    return fences // 2 if fences % 2 == 0 else 0


def num_sections(text: str, title: str) -> int:
    """Lines `TITLE 1`, `TITLE 2` … whose section has a word before the next one; another number ends the count."""
    heads = list(re.finditer(rf"^[#* \t]{{0,8}}{re.escape(title)}[ \t]+([0-9]{{1,3}})\b[^\n]*$", text, re.MULTILINE))
    count = 0
    for place, head in enumerate(heads):
        end = heads[place + 1].start() if place + 1 < len(heads) else len(text)
        if int(head[1]) != count + 1 or not _WORD.search(text[head.end() : end]):
            break
        count += 1
    return count


def num_phrase(text: str, phrase: str, *, ignore_case: bool) -> int:
    """Where `phrase` stands as whole words, without overlap."""
    pattern = r"\s+".join(map(re.escape, phrase.split()))
    flags = re.IGNORECASE if ignore_case else re.NOFLAG
    return len(re.findall(rf"(?<![^\W_]){pattern}(?![^\W_])", text, flags))


def distinct_share(found: Sequence[str]) -> float:
    """Of words, how many are different, capitals aside; 1 of none."""
    return len({word.casefold() for word in found}) / len(found) if found else 1.0


def scripts(text: str) -> dict[str, int]:
    """Letters by script, named as Unicode names them: "latin", "cyrillic", "cjk", "hiragana" …"""
    counts: dict[str, int] = {}
    for character in text:
        if character.isalpha():
            name = "latin" if character.isascii() else unicodedata.name(character, "none").split()[0].split("-")[0]
            counts[name.lower()] = counts.get(name.lower(), 0) + 1
    return counts


def mixes_scripts(word: str) -> bool:
    """Latin letters with look-alikes of another alphabet in one word."""
    found = scripts(word).keys()
    return "latin" in found and bool(found & {"cyrillic", "greek", "armenian", "cherokee", "mathematical", "fullwidth"})
