"""An environment from a plain verify function."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from posttrain.core.errors import IsolationUnavailableError
from posttrain.core.protocols import Transition
from posttrain.core.types import Message, Role, Split, Task, Verdict, VerdictStatus
from posttrain.domains.single_turn import SingleTurnEnvironment

TASK = Task("toy", (Message(Role.USER, "Say hi."),), {"answer": "hi"}, Split.TRAIN, 0, 0, 1)


def exact(task: Task, reply: str) -> Verdict:
    return Verdict.correct(answer=reply) if reply == task.hidden["answer"] else Verdict.incorrect("not it")


async def exact_later(task: Task, reply: str) -> Verdict:
    await asyncio.sleep(0)
    return exact(task, reply)


def play(verify: Callable[[Task, str], Any], reply: str, *, truncated: bool = False) -> Transition:
    async def episode() -> Transition:
        environment = SingleTurnEnvironment(TASK, verify, "3")
        assert await environment.reset() == TASK.prompt
        transition = await environment.step(reply, truncated=truncated)
        await environment.close()
        return transition

    return asyncio.run(episode())


def verdict_of(transition: Transition) -> Verdict:
    assert transition.verdict is not None
    return transition.verdict


@pytest.mark.parametrize("verify", [exact, exact_later])
def test_the_reply_is_judged_once_and_the_episode_is_over(verify: Callable[[Task, str], Any]) -> None:
    right, wrong = play(verify, "hi"), play(verify, "ho")
    assert right.done
    assert (right.reward, wrong.reward) == (1.0, 0.0)
    assert verdict_of(right).status is VerdictStatus.CORRECT
    assert verdict_of(wrong).status is VerdictStatus.INCORRECT


def test_the_verdict_carries_the_version_and_the_time_that_judging_took() -> None:
    verdict = verdict_of(play(exact, "hi"))
    assert verdict.verifier_version == "3"
    assert verdict.wall_s > 0.0


def test_a_version_and_a_time_of_the_verifiers_own_stay() -> None:
    verdict = verdict_of(play(lambda task, reply: Verdict.correct(verifier_version="9", wall_s=7.0), "hi"))
    assert (verdict.verifier_version, verdict.wall_s) == ("9", 7.0)


def test_a_truncated_reply_is_judged_like_any_other_text() -> None:
    assert verdict_of(play(exact, "hi", truncated=True)).status is VerdictStatus.CORRECT
    assert verdict_of(play(exact, "h", truncated=True)).status is VerdictStatus.INCORRECT


def test_cancellation_goes_through() -> None:
    async def hang(task: Task, reply: str) -> Verdict:
        await asyncio.Event().wait()
        return Verdict.correct()

    async def episode() -> None:
        async with asyncio.timeout(0.01):
            await SingleTurnEnvironment(TASK, hang, "1").step("hi", truncated=False)

    with pytest.raises(TimeoutError):
        asyncio.run(episode())


def test_a_second_reply_is_a_mistake_of_ours() -> None:
    async def twice() -> None:
        environment = SingleTurnEnvironment(TASK, exact, "1")
        await environment.step("hi", truncated=False)
        await environment.step("hi", truncated=False)

    with pytest.raises(AssertionError, match="second reply"):
        asyncio.run(twice())


def test_missing_isolation_is_not_made_a_verdict_of() -> None:
    def isolates(task: Task, reply: str) -> Verdict:
        raise IsolationUnavailableError("no user namespaces")

    with pytest.raises(IsolationUnavailableError):
        play(isolates, "hi")
