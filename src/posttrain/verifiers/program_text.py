"""The program in a reply: the whole reply, or the inside of its one fenced block.

It is text here: neither parsed nor run in this process. Text around the one block is not read.
"""

from __future__ import annotations

import re

from posttrain.verifiers.final_answer import Refused
from posttrain.verifiers.flags import Flag

MAX_PROGRAM_CHARACTERS = 20_000

_FENCE = re.compile(r"^ {0,3}```", re.MULTILINE)
_LANGUAGES = ("", "python", "py", "python3")


def read_program(reply: str, function: str) -> str | Refused:
    """The program that should define `function`; refused where it never so much as names it."""
    if len(reply) > MAX_PROGRAM_CHARACTERS:
        return Refused(f"the reply has {len(reply)} of at most {MAX_PROGRAM_CHARACTERS} characters", (Flag.TOO_LONG,))
    fences = [match.end() for match in _FENCE.finditer(reply)]
    program: str | Refused = reply if not fences else _inside(reply, fences)
    if isinstance(program, Refused):
        return program
    if not program.strip():
        return Refused("the reply has no program", (Flag.NO_ANSWER,))
    if not re.search(rf"\b{re.escape(function)}\b", program):
        return Refused(f"the program never names the function {function}", (Flag.FUNCTION_NOT_NAMED,))
    return program.strip()


def _inside(reply: str, fences: list[int]) -> str | Refused:
    """`fences` are the ends of the fence marks, in order."""
    if len(fences) == 1:
        return Refused("the reply's code block is not closed", (Flag.UNCLOSED_FENCE,))
    if len(fences) > 2:
        return Refused("the reply has several code blocks, not one", (Flag.SEVERAL_PROGRAMS,))
    language, _, rest = reply[fences[0] :].partition("\n")
    if language.strip().lower() not in _LANGUAGES:
        return Refused(f"the reply's code block is not Python but {language.strip()[:20]!r}", (Flag.NO_ANSWER,))
    return _FENCE.split(rest, maxsplit=1)[0]
