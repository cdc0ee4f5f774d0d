"""L30 at the suite: training tasks that share content with evaluation tasks are refused before anything starts."""

from __future__ import annotations

import pytest

from posttrain.core.errors import OverlapError, UserError
from posttrain.core.types import Message, Role, Split, Task
from posttrain.gate.suite import Suite, check_disjoint


def task(domain: str, text: str, split: Split, index: int = 0, content_key: str = "") -> Task:
    return Task(domain, (Message(Role.USER, text),), {}, split, 0, index, 1, content_key=content_key)


SUITE = Suite(
    {
        "sums": tuple(task("sums", f"{n} + 1", Split.EVAL, n, content_key=f"sum 1 {n}") for n in range(10, 20)),
        "words": (task("words", "sort b a", Split.EVAL),),
    }
)


def test_disjoint_streams_pass() -> None:
    check_disjoint((task("sums", f"{n} + 1", Split.TRAIN, n, f"sum 1 {n}") for n in range(20, 60)), SUITE)


def test_an_overlap_is_refused_with_its_domain_and_an_example() -> None:
    stream = [task("sums", "30 + 1", Split.TRAIN), task("words", "sort b a", Split.TRAIN, index=41)]
    with pytest.raises(OverlapError, match=r"1 of domain words, for example 'sort b a' .*index 41") as caught:
        check_disjoint(stream, SUITE)
    assert isinstance(caught.value, UserError)
    assert "sums" not in str(caught.value)


def test_the_same_problem_in_other_words_is_an_overlap() -> None:
    with pytest.raises(OverlapError, match="1 \\+ 12"):
        check_disjoint([task("sums", "1 + 12", Split.TRAIN, content_key="sum 1 12")], SUITE)


def test_repetitions_of_one_task_count_once_and_every_domain_is_named() -> None:
    stream = [task("sums", "12 + 1", Split.TRAIN, content_key="sum 1 12")] * 5 + [
        task("words", "sort b a", Split.TRAIN)
    ]
    with pytest.raises(OverlapError, match=r"1 of domain sums, .*; 1 of domain words"):
        check_disjoint(stream, SUITE)
