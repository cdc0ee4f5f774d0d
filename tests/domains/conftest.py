"""Builders for domain tests: a sandbox for code that these tests wrote themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from posttrain.core.protocols import SandboxSession
from posttrain.core.sandboxing import (
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


class TrustedSandbox:
    """Runs demonstrations in this process: for code of our own making only."""

    tier = IsolationTier.SCRIPTED.value

    def __init__(self) -> None:
        self.calls = 0

    async def call(
        self,
        source: str,
        function: str,
        inputs: Sequence[Sequence[Json]],
        *,
        limits: SandboxLimits,
        profile: str = "python",
    ) -> CallResult:
        self.calls += 1
        namespace: dict[str, Json] = {}
        try:
            exec(source, namespace)
            call = namespace[function]
        except (SyntaxError, NameError, KeyError, ValueError) as error:
            run = RunResult(ResultClass.PROGRAM_ERROR, IsolationTier.SCRIPTED, reason=f"{type(error).__name__}")
            return CallResult(run, tuple(CallOutput(OutputStatus.MISSING) for _ in inputs))
        outputs = tuple(_answer(call, arguments) for arguments in inputs)
        return CallResult(RunResult(ResultClass.OK, IsolationTier.SCRIPTED, wall_s=0.001), outputs)

    async def run(
        self, argv: Sequence[str], *, files: Mapping[str, str] | None = None, stdin: str = "", limits: SandboxLimits
    ) -> RunResult:
        raise NotImplementedError

    async def test(
        self, tree: Mapping[str, str], tests: Mapping[str, str], expected: Sequence[str], *, limits: SandboxLimits
    ) -> TestResult:
        raise NotImplementedError

    async def session(self, tree: Mapping[str, str]) -> SandboxSession:
        raise NotImplementedError

    async def close(self) -> None:
        return None


def _answer(call: Json, arguments: Sequence[Json]) -> CallOutput:
    try:
        return CallOutput(OutputStatus.VALUE, call(*arguments))
    except (TypeError, AttributeError, IndexError) as error:
        return CallOutput(OutputStatus.RAISED, error=str(error))


@pytest.fixture
def trusted_sandbox() -> TrustedSandbox:
    return TrustedSandbox()
