"""Executions of these tests' own programs in this process, as a sandbox would report them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from posttrain.core.sandboxing import CallOutput, CallResult, IsolationTier, OutputStatus, ResultClass, RunResult
from posttrain.core.types import Json
from posttrain.sandbox.plain import NotPlainError, encode
from posttrain.sandbox.scripted import ScriptedCall


def run_here(asked: ScriptedCall) -> CallResult:
    """As a real sandbox would, for programs that end and hurt nobody."""
    namespace: dict[str, Any] = {}
    try:
        exec(asked.source, namespace)
        function = namespace[asked.function]
    except Exception as error:
        return ended(asked, ResultClass.PROGRAM_ERROR, repr(error))
    outputs = tuple(_answer(function, arguments) for arguments in asked.inputs)
    return CallResult(RunResult(ResultClass.OK, IsolationTier.SCRIPTED), outputs)


def ended(asked: ScriptedCall, result_class: ResultClass, reason: str = "") -> CallResult:
    """An execution that ended before it answered anything."""
    outputs = tuple(CallOutput(OutputStatus.MISSING) for _ in asked.inputs)
    return CallResult(RunResult(result_class, IsolationTier.SCRIPTED, reason=reason), outputs)


def after_answering(asked: ScriptedCall, result_class: ResultClass) -> CallResult:
    """An execution that answered everything and then ended in this way."""
    return replace(run_here(asked), run=RunResult(result_class, IsolationTier.SCRIPTED, reason="told to"))


def _answer(function: Callable[..., Json], arguments: tuple[Json, ...]) -> CallOutput:
    try:
        value = function(*arguments)
        encode(value)
    except NotPlainError as error:
        return CallOutput(OutputStatus.NOT_PLAIN, error=str(error))
    except Exception as error:
        return CallOutput(OutputStatus.RAISED, error=str(error))
    return CallOutput(OutputStatus.VALUE, value)
