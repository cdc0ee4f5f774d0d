"""Arithmetic tasks."""

from __future__ import annotations

import re

import pytest

from posttrain.core.types import Split
from posttrain.domains.arithmetic import Arithmetic

# Evaluated by Python for comparison: these are expressions of our own making, digits and operators only.
EXPRESSION = re.compile(r"[0-9+\-*() ]+")


@pytest.mark.parametrize("level", range(1, 6))
def test_the_answer_is_what_the_expression_is_worth_and_every_shown_step_holds(level: int) -> None:
    for index in range(200):
        task = Arithmetic().task(Split.TRAIN, 0, index, level)
        expression = task.prompt[0].content.removeprefix("Compute ").removesuffix(". End with 'Answer: N'.")
        assert EXPRESSION.fullmatch(expression)
        assert eval(expression) == task.hidden["answer"]
        for step in task.hidden["steps"]:
            left, right = step.split(" = ")
            assert EXPRESSION.fullmatch(left)
            assert eval(left) == int(right) >= 0


def test_operands_in_another_order_are_the_same_problem() -> None:
    keys: dict[str, set[str]] = {}
    for index in range(3000):
        task = Arithmetic().task(Split.TRAIN, 0, index, 1)
        operands = re.findall(r"[0-9]+", task.prompt[0].content)
        keys.setdefault(" ".join(sorted(operands)), set()).add(task.task_id)
    assert all(len(ids) == 1 for ids in keys.values())
    assert len(keys) > 400


def test_demonstrations_show_steps_only_where_there_are_several_and_the_option_asks() -> None:
    one, several = (Arithmetic().task(Split.TRAIN, 0, 0, level) for level in (2, 4))
    assert Arithmetic().demonstration(one).startswith("Answer: ")
    assert len(re.findall("=", Arithmetic().demonstration(several))) == 2
    assert Arithmetic(chain=False).demonstration(several).startswith("Answer: ")


def test_without_steps_replies_have_less_room() -> None:
    long, short = (Arithmetic(chain=chain).task(Split.TRAIN, 0, 0, 5).limits.max_new_tokens for chain in (True, False))
    assert short < long
