"""The programs of `posttrain bench sandbox`, and how they run without a sandbox: it is what ours is compared with."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import venv
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posttrain.core.errors import SandboxError


@dataclass(frozen=True)
class Program:
    """`function` of `source` is to give `expected` for `inputs`."""

    name: str
    source: str
    function: str
    inputs: list[list[Any]]
    expected: list[Any]
    profile: str = "python"

    @property
    def script(self) -> str:
        """That prints what it gives for the first input."""
        arguments = ", ".join(map(repr, self.inputs[0]))
        return f"{self.source}\nprint(repr({self.function}({arguments})))"


TRIVIAL = Program("the trivial program", "def f(x):\n    return x + 1", "f", [[1]], [2])
ASSERTS = Program(
    "the program with five inputs",
    """
import heapq
from collections import Counter

def most_common_words(words, count):
    counted = Counter(words)
    return [(word, -number) for number, word in heapq.nsmallest(count, ((-n, w) for w, n in counted.items()))]
""",
    "most_common_words",
    [
        [["red", "green", "black", "pink", "green", "red", "red"], 2],
        [["one", "two", "three", "two"], 1],
        [[], 3],
        [["a", "b", "c", "a", "b", "a"], 3],
        [["Facebook", "Apple", "Amazon", "Netflix", "Google", "Apple", "Netflix"], 2],
    ],
    [
        [("red", 3), ("green", 2)],
        [("two", 2)],
        [],
        [("a", 3), ("b", 2), ("c", 1)],
        [("Apple", 2), ("Netflix", 2)],
    ],
)
NUMPY = Program(
    "the numpy program",
    """
import numpy as np

def f(n):
    a = np.arange(n * n, dtype=float).reshape(n, n)
    return float((a @ a).trace())
""",
    "f",
    [[8]],
    [68_880.0],
    profile="numpy",
)
MAKE_FILES = Program(
    "the program that makes files",
    """
import os

def f(count):
    for number in range(count):
        with open(f"file{number}", "w") as file:
            file.write("x" * 100)
    return len(os.listdir("."))
""",
    "f",
    [[1]],
    [1],
)

LOOPS = {
    "loop": "def f(x):\n    while True:\n        pass",
    "loop that catches everything": """
def f(x):
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass
""",
    "sleep": "import time\ndef f(x):\n    time.sleep(1000)",
}
BOMBS = {
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
        try:
            kept.append(bytearray(1 << 20))
        except MemoryError:
            pass
""",
    "memory bombs in many processes": """
import os

def f(x):
    for _ in range(4):
        try:
            os.fork()
        except OSError:
            pass
    kept = []
    while True:
        try:
            kept.append(bytearray(1 << 20))
        except MemoryError:
            pass
""",
}


def empty_environment(folder: Path) -> str:
    """The base interpreter without any package. As it is installed it may be far slower to start: packages hook into
    that by `.pth` files, which no program asked for, and which would make the sandbox look good."""
    venv.create(folder, with_pip=False, symlinks=True)
    return str(folder / "bin" / "python")


def base_interpreter() -> str:
    return str(getattr(sys, "_base_executable", sys.executable))


def run_bare(python: str) -> None:
    """Nothing is cheaper that is a process of its own."""
    done = subprocess.run([python, "-c", "pass"], stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise SandboxError(f"bare Python exited with {done.returncode}")


def run_with_rlimits(python: str) -> None:
    """What is often taken for a sandbox: a session of its own and limits for each process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads, as whoever does this does
        _expect(TRIVIAL, [python, "-c", TRIVIAL.script], preexec_fn=_session_with_rlimits)


def run_numpy_cold() -> None:
    _expect(NUMPY, [sys.executable, "-c", NUMPY.script])


def _expect(program: Program, command: Sequence[str], **options: Any) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, **options)
    if done.stdout.strip() != repr(program.expected[0]):
        raise SandboxError(f"{program.name} printed {done.stdout!r} without a sandbox: {done.stderr[-500:]}")


def _session_with_rlimits() -> None:
    os.setsid()
    for name, amount in (
        (resource.RLIMIT_AS, 1 << 30),
        (resource.RLIMIT_CPU, 5),
        (resource.RLIMIT_FSIZE, 16 << 20),
        (resource.RLIMIT_NOFILE, 128),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(name, (amount, amount))
