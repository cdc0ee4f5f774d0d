"""What an attack is: a program, its limits, and the endings that are right. One family is one file beside this one.

A program is told about the world outside (`world.py`) and returns a list of what it could do, empty if it could do
nothing: the judge outside decides, the program only boasts. Nothing here runs anything.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from posttrain.core.sandboxing import ResultClass, SandboxLimits

OK, ERROR, SIGNAL = ResultClass.OK, ResultClass.PROGRAM_ERROR, ResultClass.SIGNAL
TIME, CPU, MEMORY = ResultClass.TIME_LIMIT, ResultClass.CPU_LIMIT, ResultClass.MEMORY_LIMIT
OUTPUT, DISK, PROCESSES = ResultClass.OUTPUT_LIMIT, ResultClass.DISK_LIMIT, ResultClass.PROCESS_LIMIT
DENIED = ResultClass.POLICY_DENIED

PATIENT = SandboxLimits(wall_s=20.0, cpu_s=5.0, memory_mib=96, processes=6, output_kib=64, disk_mib=2)
"""For programs that end by themselves: a busy machine must not turn their ending into a time limit."""
SHORT = replace(PATIENT, wall_s=0.6, cpu_s=10.0)
"""For programs that go on until they are ended."""
BRIEF_CPU = replace(PATIENT, cpu_s=1.0)

_PRELUDE = """
import ctypes, os, signal, socket, sys, threading, time

def syscall(number, *arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.syscall(number, *arguments)
    if result == -1:
        raise OSError(ctypes.get_errno(), "refused")
    return result
"""


@dataclass(frozen=True)
class Call:
    """By `Sandbox.call`; `attack(world)` is asked once."""

    source: str


@dataclass(frozen=True)
class Run:
    """By `Sandbox.run`; what the program could do it prints as lines that start with "could "."""

    argv: tuple[str, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    stdin: str = ""


@dataclass(frozen=True)
class Attack:
    """Contained where the class is one of `ends`, the answer boasts of nothing, and the world outside is untouched."""

    name: str
    rows: tuple[int, ...]
    """Of the table of cheats in the documentation; empty where only the list of what must be contained names it."""
    how: Call | Run
    ends: tuple[ResultClass, ...] = (OK,)
    """More than one where the program is a race, or a backend may refuse the call or end the program."""
    limits: SandboxLimits = PATIENT
    then: Call | None = None
    """A second execution that looks for what the first one left."""
    beside: bool = False
    """Innocent programs run while this one does."""


def program(body: str) -> Call:
    """`body` is the inside of `attack(world)`."""
    return Call(f"{_PRELUDE}\ndef attack(world):\n{textwrap.indent(textwrap.dedent(body).strip(), '    ')}\n")


def loading(source: str) -> Call:
    """The attack happens while the source is loaded."""
    return Call(f"{_PRELUDE}\n{textwrap.dedent(source).strip()}\n\ndef attack(world):\n    return []\n")


def attempts(*statements: str) -> Call:
    """Each statement that is not refused with an exception is boasted of by its own text."""
    tried = "".join(
        f"try:\n{textwrap.indent(statement, '    ')}\n    done.append({statement!r})\nexcept Exception:\n    pass\n"
        for statement in statements
    )
    return program(f"done = []\n{tried}return done")


def script(source: str) -> Run:
    """A Python file, run as a program of its own."""
    return Run(("python3", "main.py"), {"main.py": _PRELUDE + textwrap.dedent(source)})
