"""Answers that are words in an order: `Answer: apple, fig, pear`.

Words are told apart exactly, capitals included; the separator is a comma. What makes an order right may be a stored
list (`verify_sequence`) or the domain's own rule on what `read_sequence` gives.
"""

from __future__ import annotations

from collections.abc import Sequence

from posttrain.core.types import Verdict
from posttrain.verifiers.final_answer import Refused, read_final_answer


def read_sequence(reply: str) -> tuple[str, ...] | Refused:
    """The words of the reply's final answer; an empty place (`a,, b`) is kept as an empty word."""
    text = read_final_answer(reply)
    if isinstance(text, Refused):
        return text
    return tuple(word.strip() for word in text.split(","))


def verify_sequence(reply: str, expected: Sequence[str]) -> Verdict:
    """Whether the final answer is `expected`, word by word. Raises ValueError for an empty expectation (law L26)."""
    if not expected:
        raise ValueError("an empty sequence cannot be expected: every reply or none would match it")
    words = read_sequence(reply)
    if isinstance(words, Refused):
        return words.verdict()
    answer = ", ".join(words)
    if words == tuple(expected):
        return Verdict.correct(answer=answer)
    if sorted(words) == sorted(expected):
        return Verdict.incorrect("the words stand in another order", answer=answer)
    return Verdict.incorrect("the answer has other words than were asked for", answer=answer)
