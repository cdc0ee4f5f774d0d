"""A domain from Python objects."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from posttrain.core.errors import ConfigError, OverlapError
from posttrain.core.protocols import Domain
from posttrain.core.types import Limits, Message, Role, Split, Task, Verdict, VerdictStatus
from posttrain.domains.function import FunctionDomain

PAIRS = [(f"Say {number}.", str(number)) for number in range(40)]


def exact(task: Task, reply: str) -> bool:
    return bool(reply == task.hidden["answer"])


def judge(domain: FunctionDomain, reply: str, task: Task | None = None) -> Verdict:
    async def episode() -> Verdict:
        chosen = task or domain.task(Split.TRAIN, 0, 0, 1)
        transition = await domain.environment(chosen, None).step(reply, truncated=False)
        assert transition.verdict is not None
        return transition.verdict

    return asyncio.run(episode())


def ids(domain: FunctionDomain, split: Split, seed: int, indices: range) -> list[str]:
    return [domain.task(split, seed, index, 1).task_id for index in indices]


def test_a_list_of_pairs_and_a_function_are_a_domain() -> None:
    domain = FunctionDomain(PAIRS, exact)
    assert isinstance(domain, Domain)
    task = domain.task(Split.TRAIN, 0, 0, 1)
    assert (task.prompt[0].content, task.hidden["answer"]) in PAIRS
    assert judge(domain, task.hidden["answer"]).status is VerdictStatus.CORRECT
    assert judge(domain, "no").status is VerdictStatus.INCORRECT


def test_a_generator_is_read_once_and_serves_for_ever() -> None:
    def rows() -> Iterator[tuple[str, str]]:
        yield from PAIRS

    domain, same = FunctionDomain(rows(), exact), FunctionDomain(PAIRS, exact)
    assert ids(domain, Split.TRAIN, 1, range(200)) == ids(same, Split.TRAIN, 1, range(200))


def test_an_endless_generator_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("posttrain.domains.function.MAX_TASKS", 100)
    with pytest.raises(ConfigError, match="more than 100 rows"):
        FunctionDomain(((f"Say {number}.", "x") for number in itertools.count()), exact)


def test_a_pass_visits_every_task_once_and_the_next_one_in_another_order() -> None:
    domain = FunctionDomain(PAIRS, exact)
    count = len(set(ids(domain, Split.TRAIN, 0, range(200))))
    one, two = ids(domain, Split.TRAIN, 0, range(count)), ids(domain, Split.TRAIN, 0, range(count, 2 * count))
    assert len(set(one)) == count
    assert sorted(one) == sorted(two)
    assert one != two
    assert one != ids(domain, Split.TRAIN, 1, range(count))


def test_the_held_out_tasks_are_picked_by_content_not_by_place() -> None:
    forwards, backwards = FunctionDomain(PAIRS, exact), FunctionDomain(PAIRS[::-1], exact)
    held_out = set(ids(forwards, Split.EVAL, 0, range(100)))
    assert held_out == set(ids(backwards, Split.EVAL, 5, range(100)))
    assert held_out.isdisjoint(ids(forwards, Split.TRAIN, 0, range(200)))
    assert 2 <= len(held_out) <= 20


@pytest.mark.parametrize("count", range(2, 9))
def test_a_short_list_still_has_both_sides(count: int) -> None:
    for start in range(20):
        domain = FunctionDomain(PAIRS[start : start + count], exact)
        train, held_out = (set(ids(domain, split, 0, range(30))) for split in Split)
        assert train
        assert held_out
        assert len(train | held_out) == count
        assert train.isdisjoint(held_out)


def test_one_task_alone_cannot_be_divided() -> None:
    with pytest.raises(ConfigError, match="give more tasks"):
        FunctionDomain(PAIRS[:1], exact)


def test_no_tasks_are_refused() -> None:
    with pytest.raises(ConfigError, match="no train task"):
        FunctionDomain([], exact)


def test_given_evaluation_tasks_are_used_as_they_are() -> None:
    domain = FunctionDomain(PAIRS[:5], exact, eval_tasks=PAIRS[5:8])
    assert {domain.task(Split.EVAL, 0, index, 1).hidden["answer"] for index in range(9)} == {"5", "6", "7"}
    assert {domain.task(Split.TRAIN, 0, index, 1).hidden["answer"] for index in range(15)} == set("01234")


def test_a_given_evaluation_task_that_is_trained_on_is_refused() -> None:
    with pytest.raises(OverlapError, match=r"1 of eval_tasks .* 'Say 4\.'"):
        FunctionDomain(PAIRS[:5], exact, eval_tasks=PAIRS[4:8])


def test_repeated_rows_count_once_and_contradicting_rows_are_refused() -> None:
    domain = FunctionDomain([*PAIRS, *PAIRS], exact)
    assert len({*ids(domain, Split.TRAIN, 0, range(99)), *ids(domain, Split.EVAL, 0, range(99))}) == 40
    with pytest.raises(ConfigError, match=r"tasks\[40\]"):
        FunctionDomain([*PAIRS, ("Say 0.", "zero")], exact)


@pytest.mark.parametrize("row", ["Say 1.", ("", "1"), ("Say 1.",), (1, 2), None])
def test_a_row_of_another_shape_is_refused_by_its_place(row: Any) -> None:
    with pytest.raises(ConfigError, match=r"tasks\[40\]"):
        FunctionDomain([*PAIRS, row], exact)


def test_task_records_keep_their_levels_limits_and_hidden_part() -> None:
    rows = [
        Task("other", (Message(Role.USER, f"Say {n}."),), {"n": n}, Split.EVAL, 9, 9, 1 + n % 2, Limits(7))
        for n in range(40)
    ]
    domain = FunctionDomain(rows, lambda task, reply: True, name="mine")
    assert domain.levels == 2
    task = domain.task(Split.TRAIN, 3, 4, 2)
    assert (task.domain, task.split, task.seed, task.index, task.level) == ("mine", Split.TRAIN, 3, 4, 2)
    assert task.limits.max_new_tokens == 7
    assert task.hidden["n"] % 2 == 1


@pytest.mark.parametrize(
    ("score", "status", "value"),
    [
        (True, VerdictStatus.CORRECT, 1.0),
        (1, VerdictStatus.CORRECT, 1.0),
        (False, VerdictStatus.INCORRECT, 0.0),
        (0.25, VerdictStatus.INCORRECT, 0.25),
        (np.float32(1.0), VerdictStatus.CORRECT, 1.0),
        (np.bool_(True), VerdictStatus.CORRECT, 1.0),
    ],
)
def test_numbers_in_the_unit_interval_are_scores_and_one_is_correct(
    score: Any, status: VerdictStatus, value: float
) -> None:
    verdict = judge(FunctionDomain(PAIRS, lambda task, reply: score), "anything")
    assert (verdict.status, verdict.score) == (status, value)


@pytest.mark.parametrize("score", [1.0001, -0.1, float("nan"), float("inf"), 100, None, "1", [1.0]])
def test_a_score_that_is_none_is_no_verdict_and_never_clamped(score: Any) -> None:
    verdict = judge(FunctionDomain(PAIRS, lambda task, reply: score), "anything")
    assert verdict.status is VerdictStatus.NO_VERDICT
    assert "the reward function answered" in verdict.reason


def test_a_reward_may_be_async_or_give_a_whole_verdict() -> None:
    async def later(task: Task, reply: str) -> Verdict:
        await asyncio.sleep(0)
        return Verdict.incorrect("no", flags=("mine",))

    assert judge(FunctionDomain(PAIRS, later), "anything").flags == ("mine",)


def test_the_answer_is_the_final_answer_where_there_is_one_and_else_the_reply() -> None:
    domain = FunctionDomain(PAIRS, lambda task, reply: 0.5)
    assert judge(domain, "Well. Answer: 7").answer == "7"
    assert judge(domain, " seven ").answer == "seven"
    assert judge(domain, "x" * 1000).answer == "x" * 500
    assert judge(domain, "  ").answer is None


def test_demonstrations_come_from_the_given_function() -> None:
    domain = FunctionDomain(PAIRS, exact, demonstrate=lambda task: task.hidden["answer"])
    task = domain.task(Split.TRAIN, 0, 0, 1)
    assert domain.demonstration(task) == task.hidden["answer"]
    assert FunctionDomain(PAIRS, exact).demonstration(task) is None


def test_it_is_a_frozen_component() -> None:
    domain = FunctionDomain(PAIRS, exact)
    with pytest.raises(dataclasses.FrozenInstanceError):
        domain.name = "other"  # type: ignore[misc]
