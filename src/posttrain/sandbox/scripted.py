"""The fake: answers from a function of the test's, or by really calling trusted functions in this process.

It executes nothing that it is given as text, so its tier is SCRIPTED, and it keeps no limit. Faults of ours can be
injected: the first `num_faults` executions end as INFRASTRUCTURE_ERROR. For tests only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from posttrain.core.errors import SandboxError
from posttrain.core.protocols import SandboxSession
from posttrain.core.sandboxing import (
    SESSION_LIMITS,
    CallOutput,
    CallResult,
    IsolationTier,
    OutputStatus,
    ResultClass,
    RunResult,
    SandboxLimits,
    TestResult,
)
from posttrain.core.types import Json
from posttrain.sandbox.plain import NotPlainError, encode


@dataclass(frozen=True)
class ScriptedCall:
    """One execution that was asked for."""

    source: str
    function: str
    inputs: tuple[tuple[Json, ...], ...]
    limits: SandboxLimits


@dataclass(frozen=True)
class ScriptedSandbox:
    """Without `answer`, every call ends as a PROGRAM_ERROR with all outputs MISSING unless `functions` has the name."""

    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    """By the name that a call asks for; called in this process, whatever the source says."""
    answer: Callable[[ScriptedCall], CallResult] | None = None
    """Goes before `functions`."""
    run_result: RunResult = field(
        default_factory=lambda: RunResult(ResultClass.OK, IsolationTier.SCRIPTED, exit_code=0)
    )
    """What every `run` gives."""
    num_faults: int = 0
    calls: list[ScriptedCall] = field(default_factory=list, init=False, compare=False)
    """What was asked for by `call`, in order, faults included."""
    _faults: list[None] = field(default_factory=list, init=False, compare=False, repr=False)

    @property
    def tier(self) -> IsolationTier:
        return IsolationTier.SCRIPTED

    async def call(
        self,
        source: str,
        function: str,
        inputs: Sequence[Sequence[Json]],
        *,
        limits: SandboxLimits,
        profile: str = "python",
    ) -> CallResult:
        asked = ScriptedCall(source, function, tuple(map(tuple, inputs)), limits)
        self.calls.append(asked)
        if self._faulty():
            return _nothing(asked, ResultClass.INFRASTRUCTURE_ERROR, "scripted fault")
        if self.answer:
            return self.answer(asked)
        if function not in self.functions:
            return _nothing(asked, ResultClass.PROGRAM_ERROR, f"no function {function!r} is scripted")
        outputs = tuple(_really_call(self.functions[function], arguments) for arguments in asked.inputs)
        return CallResult(RunResult(ResultClass.OK, self.tier, exit_code=0), outputs)

    async def run(
        self,
        argv: Sequence[str],
        *,
        files: Mapping[str, str] | None = None,
        stdin: str = "",
        limits: SandboxLimits,
    ) -> RunResult:
        if self._faulty():
            return RunResult(ResultClass.INFRASTRUCTURE_ERROR, self.tier, reason="scripted fault")
        return dataclasses.replace(self.run_result, tier=self.tier)

    async def test(
        self, tree: Mapping[str, str], tests: Mapping[str, str], expected: Sequence[str], *, limits: SandboxLimits
    ) -> TestResult:
        _refuse("test")

    async def session(
        self, tree: Mapping[str, str], *, limits: SandboxLimits = SESSION_LIMITS, background: bool = False
    ) -> SandboxSession:
        _refuse("session")

    async def close(self) -> None:
        """Holds nothing."""

    def _faulty(self) -> bool:
        if len(self._faults) < self.num_faults:
            self._faults.append(None)
            return True
        return False


def _refuse(verb: str) -> NoReturn:
    raise SandboxError(f"the sandbox 'scripted' has no verb {verb!r}; it has call and run")


def _nothing(asked: ScriptedCall, result_class: ResultClass, reason: str) -> CallResult:
    run = RunResult(result_class, IsolationTier.SCRIPTED, reason=reason)
    return CallResult(run, tuple(CallOutput(OutputStatus.MISSING, error=reason) for _ in asked.inputs))


def _really_call(function: Callable[..., Any], arguments: tuple[Json, ...]) -> CallOutput:
    try:
        value = function(*arguments)
        encode(value)
    except NotPlainError as error:
        return CallOutput(OutputStatus.NOT_PLAIN, error=f"NotPlainError: {error}")
    except Exception as error:
        return CallOutput(OutputStatus.RAISED, error=f"{type(error).__name__}: {error}")
    return CallOutput(OutputStatus.VALUE, value=value)
