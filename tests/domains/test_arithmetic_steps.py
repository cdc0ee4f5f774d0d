"""Sums whose steps are judged beside the answer."""

from __future__ import annotations

import asyncio

import pytest

from posttrain.core.types import Split, Task, Verdict, VerdictStatus
from posttrain.domains.arithmetic_steps import MAX_STEPS, ArithmeticSteps, read_steps

DOMAIN = ArithmeticSteps()


def judge(task: Task, reply: str) -> Verdict:
    verdict = asyncio.run(DOMAIN.environment(task, None).step(reply, truncated=False)).verdict
    assert verdict is not None
    return verdict


@pytest.mark.parametrize("level", range(1, 4))
def test_demonstrations_show_every_step_and_are_correct(level: int) -> None:
    for index in range(100):
        task = DOMAIN.task(Split.TRAIN, 0, index, level)
        verdict = judge(task, DOMAIN.demonstration(task))
        assert (verdict.status, verdict.score, verdict.parts) == (VerdictStatus.CORRECT, 1.0, {"process": 1.0})
        assert verdict.evidence == {"steps": 2, "first_wrong": None}


def test_answer_and_steps_are_judged_apart() -> None:
    task = DOMAIN.task(Split.TRAIN, 0, 0, 1)
    bare = f"Answer: {sum(task.hidden['terms'])}"
    assert (judge(task, bare).score, judge(task, bare).parts) == (1.0, {"process": 0.0})
    shown = DOMAIN.demonstration(task).replace("Answer: ", "Answer: 9")
    assert (judge(task, shown).score, judge(task, shown).parts) == (0.0, {"process": 1.0})


def test_the_first_wrong_step_is_evidence_and_ends_the_counting() -> None:
    found = read_steps("5 + 7 = 12. 12 - 4 = 9. 12 - 4 = 8. Answer: 8", (5, 7, -4))
    assert (found.counted, found.needed, found.first_wrong) == (1, 2, "12 - 4 = 9.")


def test_verdict_without_any_answer_has_its_parts_all_the_same() -> None:
    verdict = judge(DOMAIN.task(Split.TRAIN, 0, 0, 1), "I do not know")
    assert verdict.status is VerdictStatus.INCORRECT
    assert verdict.parts == {"process": 0.0}


def test_results_below_zero_are_steps_as_well() -> None:
    assert read_steps("2 - 4 = -2. -2 + 3 = 1. Answer: 1", (2, 3, -4)).counted == 2


def test_long_replies_are_read_only_as_far_as_a_task_can_go() -> None:
    assert read_steps("so\n" * 10_000 + "5 + 7 = 12. Answer: 3", (5, 7)).first_wrong == "so"
    assert read_steps("\n" * 10_000 + "5 + 7 = 12. Answer: 12", (5, 7)).counted == 1
    assert MAX_STEPS >= 2


def test_operands_in_another_order_are_the_same_problem() -> None:
    keys: dict[str, set[str]] = {}
    for index in range(2000):
        task = DOMAIN.task(Split.TRAIN, 0, index, 1)
        keys.setdefault(" ".join(map(str, sorted(task.hidden["terms"]))), set()).add(task.task_id)
    assert all(len(ids) == 1 for ids in keys.values())
    assert len(keys) > 300
