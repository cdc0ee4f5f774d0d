"""One strict grammar for a whole reply: reasoning that says something, then one final answer.

    reply     = [ "<think>" text "</think>" ] text answer
    text      = sentences without tags and without "Answer:", in which nothing is said over and over; may be empty
                outside of the tags, but not between them
    answer    = as `final_answer` reads it: one line or sentence "Answer: X", and nothing behind it

A reply has the form or it has not: half of it is worth nothing. What the sentences say, and whether the answer is
right, is judged elsewhere. The time is linear in the reply's length.
"""

from __future__ import annotations

import re

from posttrain.verifiers.final_answer import MARKER, Refused, read_final_answer

OPEN, CLOSE = "<think>", "</think>"

MAX_REPEATED_SHARE = 0.3
"""Of a text's runs of four words or signs, those that stood in it before."""

_TAG = re.compile(r"<\s{0,3}/?\s{0,3}[A-Za-z][A-Za-z0-9_-]{0,30}\s{0,3}/?\s{0,3}>")
_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+|\n+")
_WORD = re.compile(r"\w+")
_SAID = re.compile(r"\w+|[^\w\s.!?,;:]")
"""Words, and signs such as those of `2 + 2` and `2 * 2`."""


def misformed(reply: str) -> str:
    """Why the reply lacks the form, in a sentence; empty where it has it."""
    answer = read_final_answer(reply)
    if isinstance(answer, Refused):
        return answer.reason
    before = reply[: reply.rindex(MARKER)]
    thought, outside = "", before
    if before.lstrip().startswith(OPEN):
        inside, close, outside = before.lstrip().removeprefix(OPEN).partition(CLOSE)
        if not close:
            return "the block of reasoning is not closed before the answer"
        thought = inside
        if not _WORD.search(thought):
            return "the block of reasoning is empty"
    if _TAG.search(thought) or _TAG.search(outside) or _TAG.search(answer):
        return "there is a tag beside the one block of reasoning at the beginning"
    return _repeated(f"{thought}\n{outside}")


def form(reply: str) -> float:
    """1 where the reply has the form, else 0: what a reward's format part is measured by."""
    return 0.0 if misformed(reply) else 1.0


def _repeated(text: str) -> str:
    sentences = [tuple(_SAID.findall(part.lower())) for part in _SENTENCE_END.split(text)]
    said = [words for words in sentences if len(words) > 1]  # "So." may be said twice
    if len(set(said)) < len(said):
        return "a sentence of the reasoning is said twice"
    words = _SAID.findall(text.lower())
    runs = [tuple(words[place : place + 4]) for place in range(len(words) - 3)]
    if runs and 1.0 - len(set(runs)) / len(runs) > MAX_REPEATED_SHARE:
        return "the reasoning says the same over and over"
    return ""
