"""The one final answer of a reply, and that of a gold: what stands in the last box, or all of a text without one.

A correction is an answer (`\\boxed{8}, no, it is \\boxed{7}`): the last box counts. Boxes in a row are the parts of one
list, so that enumerating is no way to be right. Boxes with doubt between them, or more than `MAX_BOXES` different ones,
are no final answer.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

from posttrain.verifiers.final_answer import MARKER, Refused, read_final_answer
from posttrain.verifiers.flags import Flag
from posttrain.verifiers.math.limits import MAX_REPLY_CHARACTERS

MAX_BOXES = 4
_MAX_UNBOXED_CHARACTERS = 300
_BOX = re.compile(r"\\(?:boxed|fbox)\s*(?=\{)")
_ROW = re.compile(r"[\s,;/$&.\\|()\[\]!]*(?:(?:and|or|text|\{|\}|quad|qquad)[\s,;/$&.\\|()\[\]!]*)*", re.IGNORECASE)
_DOUBT = re.compile(
    r"\b(?:or|either|maybe|perhaps|possibly|probably|alternatively|might|could|unless|else|otherwise|guess|any of)\b",
    re.IGNORECASE,
)
_DOUBT_BEFORE = re.compile(
    r"\b(?:or|either|maybe|perhaps|possibly|probably|not)\s*(?:it is\s*|it's\s*)?[$\\(\[\s]*$", re.I
)
_DOUBT_BEHIND = re.compile(r"^[\s$.,;)\]]*(?:or|maybe|perhaps|possibly|alternatively|otherwise|unless|else)\b", re.I)
_MARKER = re.compile(r"^\W{0,4}(?:final )?answer[ \t]{0,3}:[ \t*$]*(\S.*)$", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True)
class Final:
    text: str
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Box:
    start: int
    end: int
    content: str


def final_answer(reply: str) -> Final | Refused:
    """Of a reply. Reasoning before `</think>` is not read."""
    if len(reply) > MAX_REPLY_CHARACTERS:
        return Refused(f"the reply has {len(reply)} of at most {MAX_REPLY_CHARACTERS} characters", (Flag.TOO_LONG,))
    reply = reply.rpartition("</think>")[2]
    if _BOX.search(reply):
        return _boxed(reply)
    if MARKER in reply:
        answer = read_final_answer(reply)
        return answer if isinstance(answer, Refused) else Final(answer)
    text = reply.strip()
    if not text or len(text) > _MAX_UNBOXED_CHARACTERS or len(text.splitlines()) > 1:
        return Refused("the reply has no \\boxed{…} and is not an answer by itself", (Flag.NO_ANSWER,))
    return Final(text)


def gold_answer(gold: str) -> str | Refused:
    """As of a reply where there is a box; otherwise all of it."""
    return gold.strip() if not _BOX.search(gold) else _final(_boxed(gold))


def _final(found: Final | Refused) -> str | Refused:
    return found.text if isinstance(found, Final) else found


def _boxed(reply: str) -> Final | Refused:  # noqa: PLR0911 - one line for each case
    boxes = _boxes(reply)
    if not boxes:
        return Refused("a \\boxed{ is not closed", (Flag.NO_ANSWER,))
    contents = _different(boxes)
    flags = (Flag.SEVERAL_ANSWERS,) if len(contents) > 1 else ()
    if len(contents) > MAX_BOXES:
        return Refused(f"the reply gives {len(contents)} different answers", flags)
    for one, two in itertools.pairwise(boxes):
        between = reply[one.end : two.start]
        if one.content.strip() != two.content.strip() and _DOUBT.search(between) and not _ROW.fullmatch(between):
            return Refused("the reply doubts between answers", (Flag.SEVERAL_ANSWERS, Flag.HEDGED))
    last = boxes[-1]
    line_before = reply[max(0, last.start - 40) : last.start]
    if len(boxes) == 1 and (_DOUBT_BEFORE.search(line_before) or _DOUBT_BEHIND.match(reply[last.end :][:40])):
        return Refused("the answer is hedged", (Flag.HEDGED,))
    if len(boxes) > 1 and _DOUBT_BEHIND.match(reply[last.end :][:40]):
        return Refused("the answer is hedged", (Flag.HEDGED,))
    for marker in _MARKER.finditer(reply):
        if not _BOX.search(marker[1]) and _plain(marker[1]) != _plain(last.content):
            return Refused("the reply gives one answer in a box and another behind a marker", (Flag.SEVERAL_ANSWERS,))
    row = _last_row(reply, boxes)
    if not last.content.strip():
        return Refused("the box is empty", (Flag.NO_ANSWER,))
    return Final(", ".join(_different(row)) if len(row) > 1 else last.content, flags)


def _plain(text: str) -> str:
    return re.sub(r"[\s$.*]|\\[()]", "", text)


def _different(boxes: list[_Box]) -> list[str]:
    return list(dict.fromkeys(box.content.strip() for box in boxes))


def _last_row(text: str, boxes: list[_Box]) -> list[_Box]:
    """The boxes at the end that have nothing but a comma, "and" or "or" between them."""
    row = [boxes[-1]]
    for box in reversed(boxes[:-1]):
        if not _ROW.fullmatch(text[box.end : row[0].start]):
            break
        row.insert(0, box)
    return row


def _boxes(text: str) -> list[_Box] | None:
    """Outermost ones, in order; the content is that of the innermost of nested boxes. None where one is not closed."""
    found: list[_Box] = []
    for match in _BOX.finditer(text):
        if found and match.start() < found[-1].end:
            continue
        end = _closing(text, match.end())
        if end is None:
            return None
        content = text[match.end() + 1 : end]
        while (inner := _BOX.match(content.strip())) and (inner_end := _closing(content.strip(), inner.end())):
            if inner_end != len(content.strip()) - 1:
                break
            content = content.strip()[inner.end() + 1 : inner_end]
        found.append(_Box(match.start(), end + 1, content))
    return found


def _closing(text: str, opening: int) -> int | None:
    """Where the brace at `opening` is closed; `\\{` and `\\}` do not count."""
    depth = 0
    for match in re.finditer(r"\\.|[{}]", text[opening:], re.DOTALL):
        depth += {"{": 1, "}": -1}.get(match.group(), 0)
        if depth == 0:
            return opening + match.start()
    return None
