"""The fake keeps the shape of the real one."""

from __future__ import annotations

import asyncio

import pytest

from posttrain.core.errors import SandboxError
from posttrain.core.protocols import Sandbox
from posttrain.core.sandboxing import (
    CallOutput,
    CallResult,
    IsolationTier,
    OutputStatus,
    ResultClass,
    RunResult,
    SandboxLimits,
)
from posttrain.sandbox.scripted import ScriptedSandbox

LIMITS = SandboxLimits()


def ask(sandbox: Sandbox, *inputs: list[int]) -> CallResult:
    return asyncio.run(sandbox.call("def f(x): ...", "f", inputs, limits=LIMITS))


def test_functions_of_the_test_are_really_called() -> None:
    result = ask(ScriptedSandbox(functions={"f": lambda x: (10 // x,)}), [5], [0])
    assert result.outputs[0] == CallOutput(OutputStatus.VALUE, value=(2,))
    assert result.outputs[1].status is OutputStatus.RAISED
    assert result.run.tier is IsolationTier.SCRIPTED


def test_what_is_not_plain_does_not_leave_the_fake_either() -> None:
    assert ask(ScriptedSandbox(functions={"f": lambda x: {x}}), [1]).outputs[0].status is OutputStatus.NOT_PLAIN


def test_an_answer_function_sees_the_call_and_decides() -> None:
    scripted = CallResult(RunResult(ResultClass.TIME_LIMIT, IsolationTier.SCRIPTED), ())
    sandbox = ScriptedSandbox(answer=lambda asked: scripted if asked.inputs == ((7,),) else pytest.fail("another call"))
    assert ask(sandbox, [7]) is scripted
    assert sandbox.calls[0].function == "f"


def test_faults_of_ours_come_first_and_end() -> None:
    sandbox = ScriptedSandbox(functions={"f": lambda x: x}, num_faults=1)
    faulty, good = ask(sandbox, [1]), ask(sandbox, [1])
    assert faulty.run.result_class is ResultClass.INFRASTRUCTURE_ERROR
    assert faulty.outputs[0].status is OutputStatus.MISSING
    assert good.outputs[0].value == 1


def test_an_unscripted_function_is_the_programs_error() -> None:
    result = ask(ScriptedSandbox(), [1], [2])
    assert result.run.result_class is ResultClass.PROGRAM_ERROR
    assert len(result.outputs) == 2


def test_run_gives_what_was_scripted_and_other_verbs_are_refused() -> None:
    sandbox = ScriptedSandbox(run_result=RunResult(ResultClass.OK, IsolationTier.FULL, stdout="hello"))
    result = asyncio.run(sandbox.run(["anything"], limits=LIMITS))
    assert (result.stdout, result.tier) == ("hello", IsolationTier.SCRIPTED)
    with pytest.raises(SandboxError, match="'session'"):
        asyncio.run(sandbox.session({}))
