"""What the soak runs: small functions as programs that were asked for look like, and programs that mean harm.

The innocent ones are functions of this file: their source goes in, and what they give is computed here, outside.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

NUM_INPUTS = 5


@dataclass(frozen=True)
class Innocent:
    source: str
    function: str
    inputs: list[list[Any]]
    expected: list[Any]


def innocent(rng: random.Random) -> Innocent:
    """One of the functions below with inputs of its own."""
    function, make_input = rng.choice(_FUNCTIONS)
    inputs = [make_input(rng) for _ in range(NUM_INPUTS)]
    expected = [function(*arguments) for arguments in inputs]
    return Innocent(inspect.getsource(function), function.__name__, inputs, expected)


def common_elements(first, second):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    return tuple(sorted(set(first) & set(second)))


def is_prime(number):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    return number > 1 and all(number % divisor for divisor in range(2, int(number**0.5) + 1))


def longest_common_subsequence(first, second):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    lengths = [[0] * (len(second) + 1) for _ in range(len(first) + 1)]
    for i, a in enumerate(first):
        for j, b in enumerate(second):
            lengths[i + 1][j + 1] = lengths[i][j] + 1 if a == b else max(lengths[i][j + 1], lengths[i + 1][j])
    return lengths[-1][-1]


def count_words(text):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    from collections import Counter

    return dict(Counter(text.split()))


def rotate(items, by):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    by %= len(items) or 1
    return items[-by:] + items[:-by]


def to_roman(number):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    text = ""
    for value, digits in ((100, "C"), (90, "XC"), (50, "L"), (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV")):
        while number >= value:
            text, number = text + digits, number - value
    return text + "I" * number


def is_balanced(text):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    depth = 0
    for character in text:
        depth += 1 if character == "(" else -1
        if depth < 0:
            return False
    return depth == 0


def first_failure(number):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    import re

    match = re.search(r"(\d)\1", str(number))
    return match.start() if match else None


_FUNCTIONS: list[tuple[Callable[..., Any], Callable[[random.Random], list[Any]]]] = [
    (common_elements, lambda rng: [rng.choices(range(30), k=12), rng.choices(range(30), k=9)]),
    (is_prime, lambda rng: [rng.randrange(10_000)]),
    (longest_common_subsequence, lambda rng: ["".join(rng.choices("abcd", k=20)), "".join(rng.choices("abcd", k=16))]),
    (count_words, lambda rng: [" ".join(rng.choices(("red", "green", "blue"), k=20))]),
    (rotate, lambda rng: [rng.choices(range(100), k=10), rng.randrange(30)]),
    (to_roman, lambda rng: [rng.randrange(1, 200)]),
    (is_balanced, lambda rng: ["".join(rng.choices("()", k=8))]),
    (first_failure, lambda rng: [rng.randrange(10**6)]),
]

HOSTILE = {
    "loop": "def f(x):\n    while True:\n        pass",
    "fork bomb": """
import os

def f(x):
    while True:
        try:
            os.fork()
        except OSError:
            pass
""",
    "memory bomb": """
def f(x):
    kept = []
    while True:
        kept.append(bytearray(1 << 20))
""",
    "output flood": """
import os

def f(x):
    while True:
        os.write(1, b"x" * 4096)
""",
    "disk flood": """
def f(x):
    for number in range(1_000_000):
        with open(f"file{number}", "wb") as file:
            file.write(bytes(1 << 16))
""",
    "daemon": """
import os, time

def f(x):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(1000)
        os._exit(0)
    return x
""",
}
