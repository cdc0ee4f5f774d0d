"""Programs judged from what a sandbox reports."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.core.errors import SandboxError
from posttrain.core.sandboxing import (
    CallOutput,
    CallResult,
    IsolationTier,
    OutputStatus,
    ResultClass,
    RunResult,
    SandboxLimits,
)
from posttrain.core.types import Json, VerdictStatus
from posttrain.verifiers.execution_cache import ExecutionCache
from posttrain.verifiers.flags import Flag
from posttrain.verifiers.python_code import HiddenTests, ProgramVerifier, judge, same_plain_data

TESTS = HiddenTests("f", ([1], [2]), (2, 3))
CODE = "def f(x):\n    return x + 1"


def result(*values: Json, run: ResultClass = ResultClass.OK, reason: str = "") -> CallResult:
    outputs = tuple(CallOutput(OutputStatus.VALUE, value) for value in values)
    return CallResult(RunResult(run, IsolationTier.FULL, wall_s=0.25, reason=reason), outputs)


def test_all_tests_passed_is_correct_and_says_where_it_ran() -> None:
    verdict = judge(TESTS, result(2, 3), CODE)
    assert verdict.status is VerdictStatus.CORRECT
    assert verdict.isolation_tier == "full"
    assert verdict.answer == CODE
    assert verdict.wall_s == 0.25
    assert verdict.parts == {"tests_passed": 1.0}


def test_one_failed_test_is_incorrect_and_the_reason_hides_what_was_expected() -> None:
    tests = HiddenTests("f", ([1], [2]), (8123, 9456))
    verdict = judge(tests, result(8123, 7), CODE)
    assert verdict.status is VerdictStatus.INCORRECT
    assert verdict.score == 0.0
    assert verdict.parts == {"tests_passed": 0.5}
    assert "9456" not in f"{verdict.reason}{verdict.evidence}"


@pytest.mark.parametrize("status", [OutputStatus.RAISED, OutputStatus.NOT_PLAIN, OutputStatus.MISSING])
def test_an_answer_that_is_no_value_fails_its_test_even_where_a_value_lies_beside_it(status: OutputStatus) -> None:
    outputs = (CallOutput(OutputStatus.VALUE, 2), CallOutput(status, 3))
    verdict = judge(TESTS, CallResult(RunResult(ResultClass.OK, IsolationTier.FULL), outputs), CODE)
    assert verdict.status is VerdictStatus.INCORRECT
    assert (Flag.NOT_PLAIN in verdict.flags) == (status is OutputStatus.NOT_PLAIN)


@pytest.mark.parametrize(
    ("expected", "value"),
    [
        (1, True),
        (True, 1),
        (1, 1.0),
        (0, False),
        ([1, 2], (1, 2)),
        ([1, [True]], [1, [1]]),
        ("a", ["a"]),
        (None, 0),
        ([], {}),
        ({"a": 1}, {"a": 1.0}),
        ({"a": 1}, {"a": 1, "b": 2}),
        ([1, 2], [1, 2, 3]),
        (math.nan, math.nan),
    ],
)
def test_values_of_another_type_or_shape_are_not_the_same(expected: Json, value: Json) -> None:
    assert not same_plain_data(expected, value)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None, max_examples=100)
@given(PLAIN)
def test_plain_data_is_the_same_as_itself_and_never_as_itself_in_a_list(value: Any) -> None:
    assert same_plain_data(value, value)
    assert not same_plain_data(value, [value])


def test_a_hostile_depth_is_not_descended_into() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert not same_plain_data([[1]], deep)
    while deep:  # taken apart by hand: freeing it at once would recurse
        deep = deep.pop()


def test_the_verifier_sends_inputs_but_no_expected_values(told_sandbox: Any) -> None:
    told_sandbox.results = [result(2, 3)]
    verdict = asyncio.run(ProgramVerifier(TESTS, told_sandbox).verify(f"```python\n{CODE}\n```"))
    assert verdict.status is VerdictStatus.CORRECT
    assert told_sandbox.sources == [CODE]


def test_a_reply_without_a_program_never_reaches_the_sandbox(told_sandbox: Any) -> None:
    verdict = asyncio.run(ProgramVerifier(TESTS, told_sandbox).verify("I do not know."))
    assert verdict.status is VerdictStatus.INCORRECT
    assert verdict.isolation_tier is None
    assert told_sandbox.sources == []


def test_the_answer_is_the_start_of_the_program(told_sandbox: Any) -> None:
    told_sandbox.results = [result(2, 3)]
    long = CODE + "\n# " + "x" * 1000
    verdict = asyncio.run(ProgramVerifier(TESTS, told_sandbox).verify(long))
    assert verdict.answer == long[:500]


def test_siblings_with_one_program_share_one_execution_and_its_seconds_are_charged_once(told_sandbox: Any) -> None:
    told_sandbox.results = [result(2, 3)]
    verifier = ProgramVerifier(TESTS, told_sandbox, SandboxLimits(), ExecutionCache())

    async def siblings() -> list[float]:
        return [verdict.wall_s for verdict in await asyncio.gather(*(verifier.verify(CODE) for _ in range(4)))]

    assert sorted(asyncio.run(siblings())) == [0.0, 0.0, 0.0, 0.25]
    assert len(told_sandbox.sources) == 1


def test_a_sandbox_that_raises_gave_no_verdict(told_sandbox: Any) -> None:
    told_sandbox.results = [SandboxError("the pool is closed")]
    verdict = asyncio.run(ProgramVerifier(TESTS, told_sandbox).verify(CODE))
    assert verdict.status is VerdictStatus.NO_VERDICT
    assert "the pool is closed" in verdict.reason


def test_hidden_tests_are_read_from_plain_data() -> None:
    tests = HiddenTests.read({"function": "f", "tests": [[[1, 2], 3], [[[]], None]]})
    assert tests == HiddenTests("f", ([1, 2], [[]]), (3, None))


@pytest.mark.parametrize(
    "hidden",
    [
        {"function": "f", "tests": [[1, 2]]},
        {"function": "f", "tests": [[[1], 2, 3]]},
        {"function": "f", "tests": "none"},
        {"function": "f(", "tests": [[[1], 2]]},
        {"tests": [[[1], 2]]},
    ],
)
def test_hidden_tests_of_another_shape_are_refused(hidden: dict[str, Json]) -> None:
    with pytest.raises(ValueError, match=r"test|function"):
        HiddenTests.read(hidden)
