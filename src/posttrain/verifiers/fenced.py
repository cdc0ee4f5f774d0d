"""The text in a reply that is to be judged as a whole: all of it, or the inside of its one fenced block.

Text around the one block is not read. It is text here: neither parsed nor run.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from posttrain.verifiers.final_answer import MAX_REPLY_CHARACTERS, Refused
from posttrain.verifiers.flags import Flag

_FENCE = re.compile(r"^ {0,3}```", re.MULTILINE)


def read_fenced(reply: str, languages: Collection[str], what: str) -> str | Refused:
    """`what` ("program", say) stands in the reasons; `languages` may stand behind the opening fence."""
    if len(reply) > MAX_REPLY_CHARACTERS:
        return Refused(f"the reply has {len(reply)} of at most {MAX_REPLY_CHARACTERS} characters", (Flag.TOO_LONG,))
    fences = [match.end() for match in _FENCE.finditer(reply)]
    text: str | Refused = reply if not fences else _inside(reply, fences, languages)
    if isinstance(text, Refused):
        return text
    if not text.strip():
        return Refused(f"the reply has no {what}", (Flag.NO_ANSWER,))
    return text.strip()


def _inside(reply: str, fences: list[int], languages: Collection[str]) -> str | Refused:
    """`fences` are the ends of the fence marks, in order."""
    if len(fences) == 1:
        return Refused("the reply's code block is not closed", (Flag.UNCLOSED_FENCE,))
    if len(fences) > 2:
        return Refused("the reply has several code blocks, not one", (Flag.SEVERAL_PROGRAMS,))
    language, _, rest = reply[fences[0] :].partition("\n")
    if language.strip().lower() not in languages:
        wanted = next(filter(None, languages), "plain text")
        return Refused(f"the reply's code block is not {wanted} but {language.strip()[:20]!r}", (Flag.NO_ANSWER,))
    return _FENCE.split(rest, maxsplit=1)[0]
