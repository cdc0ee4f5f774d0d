"""Ordering puzzles."""

from __future__ import annotations

import asyncio
import itertools
import random
import re
from collections import Counter
from collections.abc import Mapping

import pytest

from posttrain.core.types import Json, Message, Role, Split, Task, VerdictStatus
from posttrain.domains.ordering import Ordering

MOST_ORDERS = {1: 1, 2: 2, 3: 4}
every_level = pytest.mark.parametrize("level", [1, 2, 3])


def judge(task: Task, order: list[str]) -> VerdictStatus:
    async def episode() -> VerdictStatus:
        transition = await Ordering().environment(task, None).step(f"Answer: {', '.join(order)}", truncated=False)
        assert transition.verdict is not None
        return transition.verdict.status

    return asyncio.run(episode())


def puzzle(hidden: Mapping[str, Json]) -> Task:
    return Task("ordering", (Message(Role.USER, "?"),), hidden, Split.TRAIN, 0, 0, 1)


def says(sentence: str, order: list[str]) -> bool:
    """A second reading of the clues, from the prompt's own sentences."""
    at = {name: place for place, name in enumerate(order)}
    people = [at[name] for name in re.findall("|".join(order), sentence)]
    phrase = " ".join(re.sub("|".join(order), "", sentence).split())
    return {
        "is left of": lambda: people[0] < people[1],
        "is next to": lambda: abs(people[0] - people[1]) == 1,
        "is not next to": lambda: abs(people[0] - people[1]) != 1,
        "is between and": lambda: sorted(people)[1] == people[0],
        "is first": lambda: people[0] == 0,
        "is not first": lambda: people[0] != 0,
        "is last": lambda: people[0] == len(order) - 1,
        "is not last": lambda: people[0] != len(order) - 1,
    }[phrase]()


@every_level
def test_the_orders_judged_correct_are_those_that_the_prompts_sentences_allow(level: int) -> None:
    for index in range(12):
        task = Ordering().task(Split.TRAIN, 0, index, level)
        sentences = task.prompt[0].content.split(" stand in a row. ")[1].split(" List them")[0].rstrip(".").split(". ")
        assert len(sentences) == len(task.hidden["clues"])
        fitting = 0
        for order in map(list, itertools.permutations(task.hidden["names"])):
            allowed = all(says(sentence, order) for sentence in sentences)
            assert (judge(task, order) is VerdictStatus.CORRECT) == allowed
            fitting += allowed
        assert 1 <= fitting <= MOST_ORDERS[level]


@every_level
def test_no_order_that_the_text_gives_away_scores_above_the_threshold(level: int) -> None:
    tasks = [Ordering().task(Split.EVAL, 5, index, level) for index in range(150)]
    right: Counter[tuple[str, tuple[int, ...]]] = Counter()
    for task in tasks:
        listed = task.prompt[0].content.split(" stand")[0].split(", ")
        mentioned = list(dict.fromkeys(person for clue in task.hidden["clues"] for person in clue[1:]))
        mentioned += [name for name in listed if name not in mentioned]
        for places in random.Random(0).sample(list(itertools.permutations(range(len(listed)))), 6):
            for source, names in (("listed", listed), ("mentioned", mentioned), ("sorted", task.hidden["names"])):
                right[source, places] += judge(task, [names[place] for place in places]) is VerdictStatus.CORRECT
    assert max(right.values()) / len(tasks) < 0.35


@every_level
def test_puzzles_that_the_order_of_mention_solves_are_not_admitted(level: int) -> None:
    for index in range(50):
        task = Ordering().task(Split.TRAIN, 1, index, level)
        mentioned = list(dict.fromkeys(person for clue in task.hidden["clues"] for person in clue[1:]))
        assert judge(task, mentioned) is VerdictStatus.INCORRECT


@every_level
def test_every_clue_is_needed(level: int) -> None:
    for index in range(10):
        hidden = Ordering().task(Split.TRAIN, 2, index, level).hidden
        for left_out in range(len(hidden["clues"])):
            fewer = [clue for place, clue in enumerate(hidden["clues"]) if place != left_out]
            looser = puzzle({"names": hidden["names"], "clues": fewer})
            orders = list(itertools.permutations(hidden["names"]))
            assert sum(judge(looser, list(order)) is VerdictStatus.CORRECT for order in orders) > 1


def test_everybody_is_named_exactly_once() -> None:
    task = puzzle({"names": ["Ann", "Bob"], "clues": [["left", "Ann", "Bob"]]})
    assert judge(task, ["Ann", "Bob"]) is VerdictStatus.CORRECT
    for order in (["Ann"], ["Ann", "Bob", "Bob"], ["Ann", "Bob", "Cam"], ["Ann", "Ann"], ["Ann", "Cam"], ["", ""]):
        assert judge(task, order) is VerdictStatus.INCORRECT


def test_renamed_puzzles_of_level_three_are_one_problem() -> None:
    tasks = [Ordering().task(Split.TRAIN, 0, index, 3) for index in range(400)]
    by_id: dict[str, set[str]] = {}
    for task in tasks:
        by_id.setdefault(task.task_id, set()).add(" ".join(task.hidden["names"]))
    assert max(len(people) for people in by_id.values()) > 1
