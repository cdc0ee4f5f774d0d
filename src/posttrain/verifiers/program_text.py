"""The Python program in a reply: the whole reply, or the inside of its one fenced block.

It is text here: neither parsed nor run in this process. Text around the one block is not read.
"""

from __future__ import annotations

import re

from posttrain.verifiers.fenced import read_fenced
from posttrain.verifiers.final_answer import MAX_REPLY_CHARACTERS, Refused
from posttrain.verifiers.flags import Flag

MAX_PROGRAM_CHARACTERS = MAX_REPLY_CHARACTERS
PYTHON_FENCES = ("python", "py", "python3", "")


def read_program(reply: str, function: str) -> str | Refused:
    """The program that should define `function`; refused where it never so much as names it."""
    program = read_fenced(reply, PYTHON_FENCES, "program")
    if isinstance(program, Refused):
        return program
    if not re.search(rf"\b{re.escape(function)}\b", program):
        return Refused(f"the program never names the function {function}", (Flag.FUNCTION_NOT_NAMED,))
    return program
