"""L26: nothing vacuous passes, where tasks and answers are concerned."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from posttrain.core.errors import ConfigError
from posttrain.core.registry import build
from posttrain.core.sandboxing import CallOutput, CallResult, IsolationTier, OutputStatus, ResultClass, RunResult
from posttrain.core.types import Split, Task, VerdictStatus
from posttrain.domains.function import FunctionDomain
from posttrain.sandbox.scripted import ScriptedSandbox
from posttrain.verifiers.final_answer import Refused, read_final_answer
from posttrain.verifiers.numeric import verify_number
from posttrain.verifiers.python_code import HiddenTests, judge
from posttrain.verifiers.sequence import verify_sequence


@pytest.mark.parametrize("tests", [[], None, "", {}, ()])
def test_no_hidden_tests_are_an_error_when_the_environment_is_made(tests: object) -> None:
    domain = build("domain", "python_functions")
    task = domain.task(Split.TRAIN, 0, 0, 1)
    with pytest.raises(ValueError, match="test"):
        domain.environment(replace(task, hidden={**task.hidden, "tests": tests}), ScriptedSandbox())


def test_tests_without_expected_values_are_an_error() -> None:
    with pytest.raises(ValueError, match="no test"):
        HiddenTests("f", ([1], [2]), (1,))


@pytest.mark.parametrize("missing", range(3))
def test_one_test_that_did_not_report_is_incorrect(missing: int) -> None:
    tests = HiddenTests("f", ([0], [1], [2]), (0, 1, 2))
    outputs = [CallOutput(OutputStatus.VALUE, value) for value in range(3)]
    outputs[missing] = CallOutput(OutputStatus.MISSING, missing)
    verdict = judge(tests, CallResult(RunResult(ResultClass.OK, IsolationTier.FULL, exit_code=0), tuple(outputs)), "")
    assert verdict.status is VerdictStatus.INCORRECT


def test_no_answers_at_all_never_pass_whatever_the_exit_status() -> None:
    run = RunResult(ResultClass.OK, IsolationTier.FULL, exit_code=0)
    assert judge(HiddenTests("f", ([0],), (None,)), CallResult(run, ()), "").status is not VerdictStatus.CORRECT


@pytest.mark.parametrize("clues", [[], [["beside", "Ann", "Bob"]], [["left", "Ann"]], [["first", "Ann", "Bob"]]])
def test_an_ordering_without_clues_or_with_an_unknown_rule_is_an_error(clues: list[list[str]]) -> None:
    domain = build("domain", "ordering")
    task = domain.task(Split.TRAIN, 0, 0, 1)
    with pytest.raises(ValueError, match="clue"):
        domain.environment(replace(task, hidden={"names": ["Ann", "Bob"], "clues": clues}), None)


def test_an_empty_expected_sequence_or_number_is_an_error() -> None:
    with pytest.raises(ValueError, match="empty"):
        verify_sequence("Answer: ", [])
    with pytest.raises(ValueError, match="expected"):
        verify_number("Answer: ", "")


@pytest.mark.parametrize("reply", ["", "Answer:", "Answer: .", "\n\n", "Answer: \n"])
def test_an_empty_answer_is_no_answer(reply: str) -> None:
    assert isinstance(read_final_answer(reply), Refused)


def test_a_domain_without_tasks_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no train task"):
        FunctionDomain([], lambda task, reply: 1.0)


@pytest.mark.parametrize(("name", "levels"), [("arithmetic", 5), ("words", 4), ("ordering", 3)])
def test_a_task_whose_hidden_part_is_lost_gives_no_verdict(name: str, levels: int) -> None:
    domain = build("domain", name)

    def play(task: Task, reply: str) -> VerdictStatus:
        transition = asyncio.run(domain.environment(task, None).step(reply, truncated=False))
        status: VerdictStatus = transition.verdict.status
        return status

    task = domain.task(Split.TRAIN, 0, 0, levels)
    assert play(task, domain.demonstration(task)) is VerdictStatus.CORRECT
    emptied = replace(task, hidden={"clues": task.hidden.get("clues")})
    assert play(emptied, domain.demonstration(task)) is VerdictStatus.NO_VERDICT
