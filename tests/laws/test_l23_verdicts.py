"""L23, the verifiers' half: a failure of ours is no verdict, the candidate's own doing is incorrect."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.core.errors import SandboxError
from posttrain.core.registry import build
from posttrain.core.sandboxing import CallOutput, CallResult, IsolationTier, OutputStatus, ResultClass, RunResult
from posttrain.core.types import Message, Role, Split, Task, Verdict, VerdictStatus
from posttrain.domains.function import FunctionDomain
from posttrain.domains.single_turn import SingleTurnEnvironment
from posttrain.verifiers.python_code import HiddenTests, judge

TASK = Task("toy", (Message(Role.USER, "Say hi."),), {}, Split.TRAIN, 0, 0, 1)
TESTS = HiddenTests("f", ([1],), (1,))


def play(environment: Any, reply: str) -> Verdict:
    transition = asyncio.run(environment.step(reply, truncated=False))
    assert transition.reward == transition.verdict.score
    verdict: Verdict = transition.verdict
    return verdict


@pytest.mark.parametrize("result_class", list(ResultClass))
def test_an_infrastructure_error_alone_is_no_verdict(result_class: ResultClass) -> None:
    run = RunResult(result_class, IsolationTier.FULL, reason="told so")
    verdict = judge(TESTS, CallResult(run, (CallOutput(OutputStatus.VALUE, 2),)), "")
    ours = result_class is ResultClass.INFRASTRUCTURE_ERROR
    assert verdict.status is (VerdictStatus.NO_VERDICT if ours else VerdictStatus.INCORRECT)
    assert verdict.score == 0.0


def test_an_infrastructure_error_is_no_verdict_even_with_every_value_right() -> None:
    run = RunResult(ResultClass.INFRASTRUCTURE_ERROR, IsolationTier.FULL)
    verdict = judge(TESTS, CallResult(run, (CallOutput(OutputStatus.VALUE, 1),)), "")
    assert verdict.status is VerdictStatus.NO_VERDICT


RAISED: list[Exception] = [ValueError("bad task"), RecursionError("deep"), MemoryError(), SandboxError("down")]


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("later", [False, True], ids=["sync", "async"])
def test_a_verifier_that_raises_gave_no_verdict_and_its_sentence_is_kept(error: Exception, later: bool) -> None:
    def raises(task: Task, reply: str) -> Verdict:
        raise error

    async def raises_later(task: Task, reply: str) -> Verdict:
        raise error

    verdict = play(SingleTurnEnvironment(TASK, raises_later if later else raises, "1"), "hi")
    assert verdict.status is VerdictStatus.NO_VERDICT
    assert f"{type(error).__name__}: {error}" in verdict.reason


@pytest.mark.parametrize("answer", [None, 1.0, "correct", VerdictStatus.CORRECT])
def test_a_verifier_that_answers_with_something_else_gave_no_verdict(answer: Any) -> None:
    assert play(SingleTurnEnvironment(TASK, lambda task, reply: answer, "1"), "hi").status is VerdictStatus.NO_VERDICT


@settings(deadline=None, max_examples=50)
@given(st.floats() | st.integers())
def test_a_reward_outside_its_range_is_no_verdict_and_inside_it_is_kept_exactly(score: float) -> None:
    domain = FunctionDomain([("a", 1), ("b", 2)], lambda task, reply: score)
    verdict = play(domain.environment(domain.task(Split.TRAIN, 0, 0, 1), None), "hi")
    if 0 <= score <= 1:
        assert verdict.score == score
    else:
        assert verdict.status is VerdictStatus.NO_VERDICT


def test_a_reward_that_raises_is_no_verdict() -> None:
    domain = FunctionDomain([("a", 1), ("b", 2)], lambda task, reply: 1 / 0)
    verdict = play(domain.environment(domain.task(Split.TRAIN, 0, 0, 1), None), "hi")
    assert verdict.status is VerdictStatus.NO_VERDICT
    assert "ZeroDivisionError" in verdict.reason


@pytest.mark.parametrize("name", ["arithmetic", "words", "ordering"])
@settings(deadline=None, max_examples=60)
@given(reply=st.text(max_size=80), frame=st.sampled_from(["{}", "Answer: {}", "so. Answer: {}", "Answer: {}\n"]))
def test_no_reply_whatever_makes_a_built_in_domain_fail(name: str, reply: str, frame: str) -> None:
    domain = build("domain", name)
    verdict = play(domain.environment(domain.task(Split.TRAIN, 0, 0, 1), None), frame.replace("{}", reply))
    assert verdict.status is VerdictStatus.INCORRECT


class FailingSandbox:
    tier = IsolationTier.FULL.value

    def __init__(self, answer: Callable[[], CallResult]) -> None:
        self.answer = answer

    async def call(self, *args: Any, **options: Any) -> CallResult:
        return self.answer()


def down() -> CallResult:
    raise SandboxError("every slot is retired")


def infrastructure_error() -> CallResult:
    return CallResult(RunResult(ResultClass.INFRASTRUCTURE_ERROR, IsolationTier.FULL, reason="fork failed"), ())


def silent() -> CallResult:
    return CallResult(RunResult(ResultClass.OK, IsolationTier.FULL), ())


@pytest.mark.parametrize("answer", [down, infrastructure_error, silent])
def test_a_sandbox_that_fails_leaves_a_right_program_without_a_verdict(answer: Callable[[], CallResult]) -> None:
    domain = build("domain", "python_functions")
    task = domain.task(Split.TRAIN, 0, 0, 1)
    verdict = play(domain.environment(task, FailingSandbox(answer)), domain.demonstration(task))
    assert verdict.status is VerdictStatus.NO_VERDICT
    assert "the sandbox failed" in verdict.reason
    assert verdict.isolation_tier == "full"
