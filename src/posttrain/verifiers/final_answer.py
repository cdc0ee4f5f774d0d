"""One strict grammar for final answers: the reply ends with exactly one line or sentence `Answer: X`.

Whatever stands before it is reasoning and is not read. Several answers, hedges, nothing at all, or text behind the
answer are refused with a flag. `X` is text of one line; what it means is the next verifier's affair. Nothing here is
evaluated, and the time is linear in the reply's length.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from posttrain.core.types import Verdict
from posttrain.verifiers.flags import Flag

MARKER = "Answer:"
MAX_REPLY_CHARACTERS = 20_000
MAX_ANSWER_CHARACTERS = 200

_ANY_MARKER = re.compile(r"answer[ \t]{0,3}:", re.IGNORECASE)
_SENTENCE_FOLLOWS = re.compile(r"[.!?]\s")
_HEDGE = re.compile(
    r"\b(?:or|either|maybe|perhaps|possibly|probably|approximately|approx|about|around|roughly)\b|[~≈±]", re.IGNORECASE
)


@dataclass(frozen=True)
class Refused:
    """Why a reply has no answer that could be judged: the candidate's own doing."""

    reason: str
    flags: tuple[str, ...] = ()

    def verdict(self) -> Verdict:
        return Verdict.incorrect(self.reason, flags=self.flags)


def read_final_answer(reply: str) -> str | Refused:
    """The text of the reply's one final answer, without its final full stop."""
    if len(reply) > MAX_REPLY_CHARACTERS:
        return Refused(f"the reply has {len(reply)} of at most {MAX_REPLY_CHARACTERS} characters", (Flag.TOO_LONG,))
    markers = list(_ANY_MARKER.finditer(reply))
    if len(markers) > 1:
        return Refused(f"the reply gives {len(markers)} answers, not one", (Flag.SEVERAL_ANSWERS,))
    if not markers or not _begins_a_sentence(reply, markers[0].start()) or markers[0].group() != MARKER:
        return Refused(f"no line or sentence of the reply begins with '{MARKER}'", (Flag.NO_ANSWER,))
    return _read_value(reply[markers[0].end() :].strip())


def _begins_a_sentence(reply: str, start: int) -> bool:
    before = reply[:start]
    text = before.rstrip()
    gap = before[len(text) :]
    return not text or "\n" in gap or (gap != "" and text[-1] in ".!?")


def _read_value(value: str) -> str | Refused:
    if len(value.splitlines()) > 1 or _SENTENCE_FOLLOWS.search(value):
        return Refused("there is text behind the answer", (Flag.TEXT_AFTER_ANSWER,))
    if len(value) > MAX_ANSWER_CHARACTERS:
        return Refused(f"the answer has {len(value)} of at most {MAX_ANSWER_CHARACTERS} characters", (Flag.TOO_LONG,))
    if _HEDGE.search(value):
        return Refused("the answer is hedged", (Flag.HEDGED,))
    value = value.removesuffix(".").rstrip()
    if not value:
        return Refused("the answer is empty", (Flag.NO_ANSWER,))
    return value
