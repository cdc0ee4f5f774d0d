"""Which text of a reply is the program."""

from __future__ import annotations

import pytest

from posttrain.verifiers.final_answer import Refused
from posttrain.verifiers.flags import Flag
from posttrain.verifiers.program_text import read_program

CODE = "def f(x):\n    return x + 1"


@pytest.mark.parametrize(
    "reply",
    [
        CODE,
        f"\n{CODE}\n",
        f"```python\n{CODE}\n```",
        f"```\n{CODE}\n```",
        f"Here it is:\n\n```py\n{CODE}\n```\nIt adds one.",
        f"  ```python\n{CODE}\n  ```",
    ],
)
def test_the_whole_reply_or_its_one_block_is_the_program(reply: str) -> None:
    assert read_program(reply, "f") == CODE


@pytest.mark.parametrize(
    ("reply", "flag"),
    [
        ("", Flag.NO_ANSWER),
        ("```\n```", Flag.NO_ANSWER),
        (f"```sh\n{CODE}\n```", Flag.NO_ANSWER),
        (f"```python\n{CODE}\n```\nor\n```python\n{CODE}\n```", Flag.SEVERAL_PROGRAMS),
        (f"```python\n{CODE}", Flag.UNCLOSED_FENCE),
        (f"{CODE}\n```", Flag.UNCLOSED_FENCE),
        ("I cannot do this.", Flag.FUNCTION_NOT_NAMED),
        ("def fg(x): return x", Flag.FUNCTION_NOT_NAMED),
        ("#" * 20_001 + "\ndef f(x): return x", Flag.TOO_LONG),
    ],
)
def test_no_program_or_several_are_refused_with_a_flag(reply: str, flag: Flag) -> None:
    refused = read_program(reply, "f")
    assert isinstance(refused, Refused)
    assert refused.flags == (flag,)


def test_text_around_the_block_is_not_part_of_the_program() -> None:
    program = read_program(f"import os\n```python\n{CODE}\n```\nos.abort()", "f")
    assert program == CODE
