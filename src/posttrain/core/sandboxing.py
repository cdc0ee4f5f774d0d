"""What a sandbox promises: limits in, exactly one result class out, and the sentence behind it.

Part of the vocabulary (`core/protocols.py` has the `Sandbox` seam itself). Nothing here runs anything.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field

from posttrain.core.types import Json


class ResultClass(enum.StrEnum):
    """How an execution ended: exactly one of these, and `INFRASTRUCTURE_ERROR` alone is ours (law L23)."""

    OK = "ok"
    PROGRAM_ERROR = "program_error"
    SIGNAL = "signal"
    TIME_LIMIT = "time_limit"
    CPU_LIMIT = "cpu_limit"
    MEMORY_LIMIT = "memory_limit"
    OUTPUT_LIMIT = "output_limit"
    DISK_LIMIT = "disk_limit"
    PROCESS_LIMIT = "process_limit"
    POLICY_DENIED = "policy_denied"
    INFRASTRUCTURE_ERROR = "infrastructure_error"


class IsolationTier(enum.StrEnum):
    """How well an execution was isolated; recorded in every result and verdict (law L27)."""

    FULL = "full"
    """User, mount, pid, ipc, uts and network namespaces, rlimits and a memory + pids cgroup."""
    FULL_WITHOUT_CGROUP = "full_without_cgroup"
    """The same, sums over processes bounded only by per-process limits."""
    ROOT_IN_CONTAINER = "root_in_container"
    """Started by real root without a user namespace; the program runs as another, non-root user."""
    REDUCED = "reduced"
    """Less than the above, by explicit opt-in only."""
    SCRIPTED = "scripted"
    """The fake: nothing was executed."""


@dataclass(frozen=True)
class SandboxLimits:
    """Per execution. Queue time is never charged to the program."""

    wall_s: float = 10.0
    cpu_s: float = 5.0
    memory_mib: int = 256
    processes: int = 16
    output_kib: int = 256
    """Standard output and standard error together; what is over is cut and the program ended."""
    disk_mib: int = 16


SESSION_LIMITS = SandboxLimits(disk_mib=256)
"""Of a session where no others are asked for."""


@dataclass(frozen=True)
class SandboxCaller:
    """For whom an execution is: those who wait for a sandbox take turns by name, the higher priority first."""

    name: str = ""
    priority: int = 0


_NOBODY = SandboxCaller()
SANDBOX_CALLER: ContextVar[SandboxCaller] = ContextVar("SANDBOX_CALLER", default=_NOBODY)
"""Set in the task that asks for executions; where it is not, they are for nobody in particular."""


@dataclass(frozen=True)
class RunResult:
    """One execution, whole."""

    result_class: ResultClass
    tier: IsolationTier
    stdout: str = ""
    stderr: str = ""
    exit_code: int | None = None
    truncated: bool = False
    wall_s: float = 0.0
    cpu_s: float = 0.0
    peak_memory_mib: float = 0.0
    reason: str = ""
    """A sentence for people; empty for OK."""


@dataclass(frozen=True)
class CellResult:
    """`SandboxSession.cell`. How it went is what the guest's own process says, and good for showing to the guest."""

    run: RunResult
    """An exception is a PROGRAM_ERROR, with its traceback in `stderr`; so is an exit of the interpreter, whatever its
    code, and only then is there an `exit_code`, and a peak of memory."""
    fresh: bool
    """The interpreter had seen no cell before: variables of earlier ones, where there were any, are lost."""
    ended: bool
    """The interpreter is gone with this cell, and the next one will have a fresh one."""


class OutputStatus(enum.StrEnum):
    VALUE = "value"
    RAISED = "raised"
    NOT_PLAIN = "not_plain"
    """The function returned something that is no plain data; it never leaves the sandbox."""
    MISSING = "missing"
    """The program ended before it answered this input."""


@dataclass(frozen=True)
class CallOutput:
    """The answer to one input: plain data, compared outside on exact types (attack 2)."""

    status: OutputStatus
    value: Json = None
    error: str = ""


@dataclass(frozen=True)
class CallResult:
    """`Sandbox.call`: one output for each input, in order, and how the whole execution went."""

    run: RunResult
    outputs: tuple[CallOutput, ...]


class TestOutcome(enum.StrEnum):
    __test__ = False

    PASSED = "passed"
    FAILED = "failed"
    MISSING = "missing"
    """An expected test id that did not report: never a pass (law L26)."""


@dataclass(frozen=True)
class TestResult:
    """`Sandbox.test`: one outcome for each expected test id."""

    __test__ = False

    run: RunResult
    outcomes: Mapping[str, TestOutcome] = field(default_factory=dict)
    tree_hash_before: str = ""
    """Of the tree with the tests in it; empty where the tests could not begin."""
    tree_hash_after: str = ""
    forgeable: bool = True
    """The tests import the candidate's code, so both run in one process, and what it reports can be forged there.
    Only `call`, whose comparison is made outside, is proof against that."""
