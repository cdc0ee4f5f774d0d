"""Cutting a row of tokens at separators that stand outside of all brackets."""

from __future__ import annotations

from collections.abc import Callable

from posttrain.verifiers.math.tokens import Token

_OPENING = ("(", "[", "{", "\\{")
_CLOSING = (")", "]", "}", "\\}")
_OPENING_COMMANDS = ("langle", "lfloor", "lceil", "begin")
_CLOSING_COMMANDS = ("rangle", "rfloor", "rceil", "end")


def change(token: Token) -> int:
    """Of the depth, behind this token."""
    if token.kind in _OPENING or (token.kind == "command" and token.text in _OPENING_COMMANDS):
        return 1
    if token.kind in _CLOSING or (token.kind == "command" and token.text in _CLOSING_COMMANDS):
        return -1
    return 0


def split(tokens: list[Token], is_separator: Callable[[Token], bool]) -> tuple[list[list[Token]], list[Token]]:
    """The parts, and the separators between them."""
    parts: list[list[Token]] = [[]]
    separators: list[Token] = []
    depth = 0
    for token in tokens:
        depth += change(token)
        if depth == 0 and change(token) == 0 and is_separator(token):
            parts.append([])
            separators.append(token)
        else:
            parts[-1].append(token)
    return parts, separators


def unwrapped(tokens: list[Token], opening: str = "{") -> list[Token]:
    """Without braces around all of it."""
    while tokens and tokens[0].kind == opening and closing_of(tokens) == len(tokens) - 1:
        tokens = tokens[1:-1]
    return tokens


def closing_of(tokens: list[Token]) -> int:
    """Where the bracket that the first token opens is closed; -1 where it is not."""
    depth = 0
    for at, token in enumerate(tokens):
        depth += change(token)
        if depth == 0:
            return at
    return -1
