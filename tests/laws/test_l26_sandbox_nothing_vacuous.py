"""L26, the sandbox's half: nothing vacuous passes, and an exit status alone says nothing about an answer."""

from __future__ import annotations

import asyncio

import pytest

from posttrain.core.errors import UserError
from posttrain.core.sandboxing import CallResult, OutputStatus, ResultClass, SandboxLimits
from posttrain.sandbox.local import LocalSandbox

LIMITS = SandboxLimits(wall_s=5.0)


def call(source: str, num_inputs: int) -> CallResult:
    return asyncio.run(LocalSandbox().call(source, "f", [[n] for n in range(num_inputs)], limits=LIMITS))


def test_a_call_without_inputs_is_refused() -> None:
    with pytest.raises(UserError, match="no inputs"):
        call("def f(x): return x", 0)


def test_a_run_without_a_program_is_refused() -> None:
    with pytest.raises(UserError, match="argv is empty"):
        asyncio.run(LocalSandbox().run([], limits=LIMITS))


@pytest.mark.parametrize(
    "source",
    [
        "raise SystemExit(0)",
        "import os; os._exit(0)",
        "import sys\ndef f(x): sys.exit(0)",
        "import os\ndef f(x): os._exit(0)",
    ],
)
def test_exit_status_zero_alone_is_no_answer(source: str) -> None:
    result = call(source, 3)
    assert (result.run.result_class, result.run.exit_code) == (ResultClass.OK, 0)
    assert [output.status for output in result.outputs] == [OutputStatus.MISSING] * 3


def test_there_is_one_output_for_every_input_even_after_an_early_end() -> None:
    result = call("import os\ndef f(x):\n    if x == 2: os._exit(0)\n    return x", 4)
    statuses = [output.status for output in result.outputs]
    assert statuses == [OutputStatus.VALUE, OutputStatus.VALUE, OutputStatus.MISSING, OutputStatus.MISSING]


def test_returning_nothing_is_a_value_and_not_a_missing_one() -> None:
    output = call("def f(x): pass", 1).outputs[0]
    assert (output.status, output.value) == (OutputStatus.VALUE, None)
