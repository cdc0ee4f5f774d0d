"""A sandbox for code that these tests wrote themselves: the scripted one, answering by running it in this process."""

from __future__ import annotations

from typing import Any

import pytest

from posttrain.core.sandboxing import CallOutput, CallResult, IsolationTier, OutputStatus, ResultClass, RunResult
from posttrain.core.types import Json
from posttrain.sandbox.scripted import ScriptedCall, ScriptedSandbox


def run_trusted(asked: ScriptedCall) -> CallResult:
    namespace: dict[str, Any] = {}
    try:
        exec(asked.source, namespace)
        function = namespace[asked.function]
    except (SyntaxError, NameError, KeyError, ValueError) as error:
        run = RunResult(ResultClass.PROGRAM_ERROR, IsolationTier.SCRIPTED, reason=type(error).__name__)
        return CallResult(run, tuple(CallOutput(OutputStatus.MISSING) for _ in asked.inputs))
    outputs = tuple(_answer(function, arguments) for arguments in asked.inputs)
    return CallResult(RunResult(ResultClass.OK, IsolationTier.SCRIPTED), outputs)


def _answer(function: Any, arguments: tuple[Json, ...]) -> CallOutput:
    try:
        return CallOutput(OutputStatus.VALUE, function(*arguments))
    except (TypeError, AttributeError, IndexError) as error:
        return CallOutput(OutputStatus.RAISED, error=str(error))


@pytest.fixture
def trusted_sandbox() -> ScriptedSandbox:
    return ScriptedSandbox(answer=run_trusted)
