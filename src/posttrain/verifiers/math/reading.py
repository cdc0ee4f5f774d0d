"""The text of a final answer → what it says. One text may have several readings; what has none is text.

A choice, a list, and one item (`items.py`) are told apart here. Nothing is evaluated but what a chain of equalities
asserts. Sizes have been checked before (`limits.py`).
"""

from __future__ import annotations

import re

from posttrain.verifiers.math.answers import Answer, Choice, Domain, Empty, Kind, Named, Sequence, Text, Unread, Value
from posttrain.verifiers.math.intervals import REALS
from posttrain.verifiers.math.items import read_item
from posttrain.verifiers.math.splitting import split, unwrapped
from posttrain.verifiers.math.tokens import Token, Unreadable, tidy, tokenize
from posttrain.verifiers.math.words import PREAMBLE, SAME_TEXTS

_TEXT_GROUP = re.compile(r"\\(?:text\w*|mbox|hbox|mathrm|mathsf|operatorname\*?)\s*\{([^{}]*)\}")
_CHOICE = re.compile(
    r"(?:(?:the )?(?:option|choice|answer) ?(?:is|:)? ?)?(?:([A-J])|\(([A-Ja-j])\)|([A-Ja-j])\))[.:]?", re.I
)
_CHOICE_WITH_CONTENT = re.compile(r"(?:option |choice )?\(?([A-J])(?:\)|[.:](?![0-9]))\s*(\S.*)")
_UNEVALUATED = re.compile(r"\\(?:sum|prod|i*int|oint|lim|frac\s*\{\s*(?:\\mathrm\s*\{?\s*)?d)(?![a-zA-Z])")
_COMMAND = re.compile(r"\\[a-zA-Z]+")
_JOINING = ("or", "and")


def read(text: str) -> tuple[Answer, ...]:
    """All readings, the likeliest first; at least one."""
    tidied = tidy(text)
    if not tidied or tidied in ("{}", "\\{", "\\}"):
        return (Empty(),)
    if _UNEVALUATED.search(tidied):
        return (Unread(tidied, unevaluated=True),)
    readings = [*_choices(tidied)]
    for grouped in (True, False) if re.search(r"[0-9],[0-9]{3}", tidied) and not re.search(r",0", tidied) else (True,):
        try:
            readings.append(_read_tokens(tokenize(tidied, grouped=grouped)))
        except Unreadable:
            continue
    return tuple(readings) or (_text(tidied),)


def plain_words(text: str) -> str:
    """Lower-case words and digits with one space between."""
    text = _TEXT_GROUP.sub(r" \1 ", text).replace("'", "")
    text = re.sub(r"[^\w\s+-]", " ", _COMMAND.sub(" ", text))
    return " ".join(text.lower().split())


def _text(text: str) -> Answer:
    unread = _COMMAND.search(_TEXT_GROUP.sub("", text))
    words = plain_words(text)
    if unread or not words:
        return Unread(text)
    for prefix in ("the answer is ", "answer ", "final answer "):
        words = words.removeprefix(prefix)
    words = SAME_TEXTS.get(words, words)
    if words == "all real numbers":
        return Domain(REALS)
    if words == "no solution":
        return Sequence(Kind.SET, ())
    return Text(words)


def _choices(text: str) -> list[Answer]:
    plain = " ".join(_TEXT_GROUP.sub(r"\1", text).split())
    marked = plain != text
    if match := _CHOICE.fullmatch(plain):
        letter = match[1] or match[2] or match[3]
        if letter.isupper() or match[2] or match[3] or marked:
            return [Choice(letter.upper())]
    elif match := _CHOICE_WITH_CONTENT.fullmatch(plain):
        content = _TEXT_GROUP.sub(r" \1 ", match[2])
        return [Choice(match[1], read(content)[0])]
    return []


def _read_tokens(tokens: list[Token]) -> Answer:
    tokens = _without_preamble(unwrapped(tokens))
    if not tokens:
        raise Unreadable("there is nothing")
    parts, separators = split(_flat_joints(tokens), _separates)
    words = {token.text.lower() for token in separators}
    parts = [unwrapped(part) for part in parts if unwrapped(part)]
    if not separators:
        return read_item(unwrapped(tokens))
    if len(parts) < 2:
        raise Unreadable("a list has one item")
    return _list([read_item(part) for part in parts], "or" in words, words == {"and"})


def _separates(token: Token) -> bool:
    return token.kind in (",", ";", "\\\\") or (token.kind == "word" and token.text.lower() in _JOINING)


def _flat_joints(tokens: list[Token]) -> list[Token]:
    """`\\text{ or }` and `\\text{, and }` without their braces."""
    found, at = [], 0
    while at < len(tokens):
        if tokens[at].kind == "{":
            end = next((index for index in range(at, len(tokens)) if tokens[index].kind == "}"), -1)
            inner = tokens[at + 1 : end]
            if end > at and inner and all(_separates(token) for token in inner):
                found += inner
                at = end + 1
                continue
        found.append(tokens[at])
        at += 1
    return found


def _without_preamble(tokens: list[Token]) -> list[Token]:
    """`\\text{The answer is }3` is 3; words alone stay."""
    at = 0
    while at < len(tokens) and (
        tokens[at].kind in ("{", "}", ":") or (tokens[at].kind == "word" and tokens[at].text.lower() in PREAMBLE)
    ):
        at += 1
    head = tokens[:at]
    if not any(token.kind == "word" for token in head):
        return tokens
    open_braces = sum(1 if token.kind == "{" else -1 for token in head if token.kind in ("{", "}"))
    rest = tokens[at:]
    if open_braces == 1 and head[-1].kind == "{":
        return [head[-1], *rest]
    if open_braces == 1:  # the number stands within the same text
        end = next((index for index, token in enumerate(rest) if token.kind == "}"), len(rest))
        return rest[:end] + rest[end + 1 :]
    return rest if open_braces == 0 else tokens


def _list(items: list[Answer], alternatives: bool, joined_by_and: bool) -> Answer:
    names = {item.name for item in items if isinstance(item, Named | Domain)}
    if all(isinstance(item, Domain) for item in items) and len(names) == 1:
        return _regions([item for item in items if isinstance(item, Domain)], alternatives, joined_by_and)
    first = items[0]
    if isinstance(first, Named) and names == {first.name} and all(isinstance(one, Named | Value) for one in items):
        values = tuple(item.answer if isinstance(item, Named) else item for item in items)
        return Named(first.name, Sequence(Kind.LIST, _flat(values), alternatives))
    return Sequence(Kind.LIST, _flat(tuple(items)), alternatives)


def _flat(items: tuple[Answer, ...]) -> tuple[Answer, ...]:
    """`±1, ±2` is a list of four."""
    found: list[Answer] = []
    for item in items:
        found.extend(item.items if isinstance(item, Sequence) and item.kind is Kind.LIST else (item,))
    return tuple(found)


def _regions(items: list[Domain], alternatives: bool, joined_by_and: bool) -> Answer:
    if not alternatives and not joined_by_and:
        return Sequence(Kind.LIST, tuple(items))
    region = items[0].region
    for item in items[1:]:
        region = region.union(item.region) if alternatives else region.intersection(item.region)
    return Domain(region, items[0].name)
