"""Task streams."""

from __future__ import annotations

import random

import numpy as np
import pytest

from posttrain.core.errors import ConfigError, UserError
from posttrain.core.types import Limits, Split
from posttrain.domains.streams import EVAL_ONE_IN, Problem, draw, split_of


def number(state: random.Random) -> Problem:
    value = state.randrange(10**9)
    return Problem(f"Say {value}.", {"answer": value}, str(value), Limits())


def test_a_fixed_quarter_of_content_is_on_the_evaluation_side() -> None:
    sides = [split_of("any", str(content)) for content in range(4000)]
    assert sides.count(Split.EVAL) / len(sides) == pytest.approx(1 / EVAL_ONE_IN, abs=0.02)


def test_the_division_is_the_same_for_ever() -> None:
    assert [content for content in range(20) if split_of("toy", str(content)) is Split.EVAL] == [2, 3, 7, 19]


def test_a_drawn_task_says_where_it_stands_and_lies_on_its_side() -> None:
    for split in Split:
        task = draw("toy", split, 3, 5, 1, number)
        assert (task.domain, task.split, task.seed, task.index, task.level) == ("toy", split, 3, 5, 1)
        assert split_of("toy", task.content_key) is split


def test_numpy_integers_draw_what_plain_integers_draw() -> None:
    assert draw("toy", Split.TRAIN, int(np.int64(3)), 5, 1, number) == draw(
        "toy",
        Split.TRAIN,
        np.int64(3),  # type: ignore[arg-type]
        np.int32(5),  # type: ignore[arg-type]
        1,
        number,
    )


def test_a_content_space_without_the_wanted_side_is_an_error_that_says_so() -> None:
    train_only = next(str(content) for content in range(100) if split_of("toy", str(content)) is Split.TRAIN)

    def make(state: random.Random) -> Problem:
        return Problem("Say it.", {}, train_only, Limits())

    with pytest.raises(ConfigError, match=r"domain toy, level 2: .* too small") as raised:
        draw("toy", Split.EVAL, 0, 0, 2, make)
    assert isinstance(raised.value, UserError)


def test_problems_that_are_not_admitted_are_passed_over() -> None:
    def make(state: random.Random) -> Problem | None:
        problem = number(state)
        return problem if problem.hidden["answer"] % 2 else None

    assert all(draw("toy", Split.TRAIN, 0, index, 1, make).hidden["answer"] % 2 for index in range(20))
