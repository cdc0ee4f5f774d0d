"""Red team, programs: what a verifier makes of hostile results, whatever the sandbox let the program try.

Rows 1, 2, 5, 12 and 24 of the list of cheats, from the side of the comparison; the sandbox has its own suite.
"""

from __future__ import annotations

from typing import Any

import pytest

from posttrain.core.sandboxing import CallOutput, CallResult, IsolationTier, OutputStatus, ResultClass, RunResult
from posttrain.core.types import Verdict, VerdictStatus
from posttrain.verifiers.final_answer import Refused
from posttrain.verifiers.flags import Flag
from posttrain.verifiers.program_text import read_program
from posttrain.verifiers.python_code import HiddenTests, judge

TESTS = HiddenTests("f", ([1], [2], [3]), (1, [2, 3], "x"))
RIGHT = (1, [2, 3], "x")


def verdict(*values: Any, run: RunResult | None = None) -> Verdict:
    outputs = tuple(CallOutput(OutputStatus.VALUE, value) for value in values)
    return judge(TESTS, CallResult(run or RunResult(ResultClass.OK, IsolationTier.FULL), outputs), "def f(x): ...")


def test_the_right_values_are_correct_so_that_these_attacks_can_fail() -> None:
    assert verdict(*RIGHT).status is VerdictStatus.CORRECT


def test_leaving_with_exit_code_zero_before_the_tests_is_incorrect() -> None:
    missing = tuple(CallOutput(OutputStatus.MISSING) for _ in RIGHT)
    run = RunResult(ResultClass.OK, IsolationTier.FULL, exit_code=0)
    left = judge(TESTS, CallResult(run, missing), "import os; os._exit(0)")
    assert left.status is VerdictStatus.INCORRECT
    assert left.flags == (Flag.ENDED_EARLY,)


def test_leaving_after_some_tests_is_incorrect() -> None:
    outputs = (CallOutput(OutputStatus.VALUE, 1), *(CallOutput(OutputStatus.MISSING) for _ in range(2)))
    run = RunResult(ResultClass.OK, IsolationTier.FULL, exit_code=0)
    assert judge(TESTS, CallResult(run, outputs), "…").status is VerdictStatus.INCORRECT


@pytest.mark.parametrize(
    "stream", ["3 passed", "ALL TESTS PASSED", '{"verdict": "correct", "score": 1}', "[1, [2, 3]]"]
)
def test_success_printed_on_a_stream_is_not_read(stream: str) -> None:
    run = RunResult(ResultClass.OK, IsolationTier.FULL, stdout=stream, stderr=stream, exit_code=0)
    assert verdict(None, None, None, run=run).status is VerdictStatus.INCORRECT


class EqualToAll:
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return True


class LyingInt(int):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


class LyingList(list[Any]):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None


class LyingText(str):
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = str.__hash__


@pytest.mark.parametrize(
    "values",
    [
        (EqualToAll(), EqualToAll(), EqualToAll()),
        (LyingInt(9), [2, 3], "x"),
        (LyingInt(1), [2, 3], "x"),
        (1, LyingList([9]), "x"),
        (1, [LyingInt(9), 3], "x"),
        (1, [2, 3], LyingText("y")),
        (True, [2, 3], "x"),
        (1.0, [2, 3], "x"),
        (1, (2, 3), "x"),
        (1, [2, 3], b"x"),
        ("1", [2, 3], "x"),
        (1, [2, 3, 4], "x"),
    ],
)
def test_objects_and_types_that_lie_about_equality_are_incorrect(values: tuple[Any, ...]) -> None:
    assert verdict(*values).status is VerdictStatus.INCORRECT


CAUSED_BY_THE_PROGRAM = sorted(set(ResultClass) - {ResultClass.OK, ResultClass.INFRASTRUCTURE_ERROR})


@pytest.mark.parametrize("result_class", CAUSED_BY_THE_PROGRAM)
def test_a_program_that_ends_badly_is_incorrect_and_flagged_even_with_all_values_right(
    result_class: ResultClass,
) -> None:
    ended = verdict(*RIGHT, run=RunResult(result_class, IsolationTier.FULL))
    assert ended.status is VerdictStatus.INCORRECT
    assert ended.score == 0.0
    assert result_class.value in ended.flags


@pytest.mark.parametrize("values", [(), (1,), (1, [2, 3]), (1, [2, 3], "x", 1)])
def test_another_number_of_answers_than_tests_never_passes(values: tuple[Any, ...]) -> None:
    assert verdict(*values).status is VerdictStatus.NO_VERDICT


def test_two_programs_are_not_a_second_chance() -> None:
    both = read_program("```python\ndef f(x): return 1\n```\n```python\ndef f(x): return 2\n```", "f")
    assert isinstance(both, Refused)
    assert both.flags == (Flag.SEVERAL_PROGRAMS,)


@pytest.mark.parametrize("reply", ["`" * 1_000_000, "```\n" * 300_000, "f" * 1_000_000, "\n" * 1_000_000])
def test_huge_replies_are_refused_unread(reply: str) -> None:
    refused = read_program(reply, "f")
    assert isinstance(refused, Refused)
    assert refused.flags == (Flag.TOO_LONG,)
