"""Logic puzzles: people stand in a row, clues leave one or few orders, and every order that fits is right.

An answer is checked by the clues, never against a stored order. Every clue is needed. Puzzles that the orders in which
their own text names the people would solve are not admitted. Content is judged up to the order of clues and, at level
3, up to renaming; below, three or four people leave too few puzzles for that, and the names count too.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from posttrain.core.protocols import Sandbox
from posttrain.core.types import Json, Limits, Split, Task, Verdict
from posttrain.domains.single_turn import SingleTurnEnvironment
from posttrain.domains.streams import Problem, check_level, draw
from posttrain.verifiers.final_answer import Refused
from posttrain.verifiers.sequence import read_sequence

NAMES = ("Ann", "Bob", "Cam", "Dan", "Eva", "Fay", "Gus", "Hal", "Ida", "Jon", "Kim", "Leo", "Max", "Ned", "Pam", "Sue")


@dataclass(frozen=True)
class _Rule:
    """A kind of clue: its sentence and whether it holds for the places (0 is leftmost) of the people it names."""

    text: str
    people: int
    holds: Callable[[Sequence[int], int], bool]
    """`holds(places, last_place)`"""
    ordered_people: int
    """How many of the people it names, from the first, cannot change places without changing the clue."""


_RULES = {
    "left": _Rule("{} is left of {}.", 2, lambda at, last: at[0] < at[1], 2),
    "next": _Rule("{} is next to {}.", 2, lambda at, last: abs(at[0] - at[1]) == 1, 0),
    "apart": _Rule("{} is not next to {}.", 2, lambda at, last: abs(at[0] - at[1]) > 1, 0),
    "between": _Rule("{} is between {} and {}.", 3, lambda at, last: min(at[1:]) < at[0] < max(at[1:]), 1),
    "first": _Rule("{} is first.", 1, lambda at, last: at[0] == 0, 1),
    "last": _Rule("{} is last.", 1, lambda at, last: at[0] == last, 1),
    "not_first": _Rule("{} is not first.", 1, lambda at, last: at[0] != 0, 1),
    "not_last": _Rule("{} is not last.", 1, lambda at, last: at[0] != last, 1),
}


@dataclass(frozen=True)
class _Level:
    people: int
    kinds: tuple[str, ...]
    max_clues: int
    max_orders: int
    """Orders that may fit: few among all, so that guessing does not pay."""
    tokens: int
    names_count: bool
    """Whether the same puzzle with other people is another puzzle."""


_LEVELS = {
    1: _Level(3, ("left", "next", "apart", "first", "last", "not_first", "not_last"), 3, 1, 14, True),
    2: _Level(4, ("left", "next", "apart", "between", "first", "last", "not_first", "not_last"), 4, 2, 18, True),
    3: _Level(5, ("left", "next", "apart", "between", "first", "last"), 4, 4, 22, False),
}

_Clue = tuple[str, ...]
"""The rule's name, then the names of its people."""


@dataclass(frozen=True)
class Ordering:
    """Level 1 three people, 2 four, 3 five."""

    name = "ordering"
    version = "1"
    licence = "Apache-2.0"
    levels = 3
    needs_sandbox = False

    def task(self, split: Split, seed: int, index: int, level: int) -> Task:
        check_level(self.name, level, self.levels)
        return draw(self.name, split, seed, index, level, lambda state: _problem(state, level))

    def environment(self, task: Task, sandbox: Sandbox | None) -> SingleTurnEnvironment:
        """Raises ValueError for a task without clues or with a clue of no known kind (law L26)."""
        _read_clues(task.hidden["clues"])
        return SingleTurnEnvironment(task, _verify, self.version)

    def demonstration(self, task: Task) -> str:
        """The first of the orders that fit, alphabetically."""
        orders = _orders(sorted(task.hidden["names"]), _read_clues(task.hidden["clues"]))
        return f"Answer: {', '.join(orders[0])}"


def _verify(task: Task, reply: str) -> Verdict:
    order = read_sequence(reply)
    if isinstance(order, Refused):
        return order.verdict()
    answer = ", ".join(order)
    if sorted(order) != sorted(task.hidden["names"]):
        return Verdict.incorrect("the answer does not name everybody once", answer=answer)
    clues = _read_clues(task.hidden["clues"])
    broken = sum(not _holds(clue, order) for clue in clues)
    if broken:
        return Verdict.incorrect(f"{broken} of {len(clues)} clues do not hold", answer=answer)
    return Verdict.correct(answer=answer)


def _read_clues(clues: Sequence[Sequence[str]]) -> list[_Clue]:
    if not clues:
        raise ValueError("an ordering without clues is solved by every order")
    for clue in clues:
        if clue[0] not in _RULES or len(clue) != _RULES[clue[0]].people + 1:
            raise ValueError(f"{list(clue)} is no clue; the kinds are {', '.join(_RULES)}")
    return [tuple(clue) for clue in clues]


def _holds(clue: Sequence[Any], order: Sequence[Any]) -> bool:
    kind, *people = clue
    return _RULES[kind].holds([order.index(person) for person in people], len(order) - 1)


def _orders(names: Sequence[str], clues: Sequence[_Clue]) -> list[tuple[str, ...]]:
    """The orders that fit, in the order in which `names` permute."""
    return [order for order in itertools.permutations(names) if all(_holds(clue, order) for clue in clues)]


def _problem(state: random.Random, number: int) -> Problem | None:
    level = _LEVELS[number]
    names = state.sample(NAMES, level.people)
    clues = _draw_clues(state, level)
    fitting = _fitting(level.people, clues)
    if fitting.bit_count() > level.max_orders or not _all_needed(level.people, clues):
        return None
    shown = [(kind, *(names[person] for person in people)) for kind, *people in clues]
    orders = _orders(names, shown)
    mentioned = list(dict.fromkeys(person for clue in shown for person in clue[1:]))
    given_away = (mentioned,)
    if any(tuple(order) in orders for order in given_away):
        return None
    sentences = " ".join(_RULES[kind].text.format(*people) for kind, *people in shown)
    answer = ", ".join("ABCDE"[: level.people])
    prompt = f"{', '.join(names)} stand in a row. {sentences} List them left to right. End with 'Answer: {answer}'."
    hidden: dict[str, Json] = {"names": sorted(names), "clues": [list(clue) for clue in shown]}
    who = " ".join(sorted(names)) if level.names_count else str(level.people)
    key = f"{who}|{_least_clue_set(level.people, clues)}"
    return Problem(prompt, hidden, key, Limits(max_new_tokens=level.tokens))


# People are numbers below; a set of orders is the bits of one integer, so that clues combine by `&`.

_Numbered = tuple[str, *tuple[int, ...]]


@functools.cache
def _mask(people: int, clue: _Numbered) -> int:
    """The orders of `people` that one clue lets stand."""
    orders = enumerate(itertools.permutations(range(people)))
    return sum(1 << place for place, order in orders if _holds(clue, order))


def _fitting(people: int, clues: Sequence[_Numbered]) -> int:
    return functools.reduce(lambda orders, clue: orders & _mask(people, clue), clues, (1 << math.factorial(people)) - 1)


def _draw_clues(state: random.Random, level: _Level) -> list[_Numbered]:
    """Clues that hold for a drawn order, each of which rules something out, until few orders are left."""
    truth = state.sample(range(level.people), level.people)
    clues: list[_Numbered] = []
    fitting = _fitting(level.people, clues)
    while fitting.bit_count() > level.max_orders and len(clues) < level.max_clues:
        kind = state.choice(level.kinds)
        clue: _Numbered = (kind, *state.sample(range(level.people), _RULES[kind].people))
        if _holds(clue, truth) and fitting & ~_mask(level.people, clue):
            clues.append(clue)
            fitting &= _mask(level.people, clue)
    return clues


def _all_needed(people: int, clues: Sequence[_Numbered]) -> bool:
    fitting = _fitting(people, clues)
    return all(_fitting(people, [*clues[:place], *clues[place + 1 :]]) != fitting for place in range(len(clues)))


def _least_clue_set(people: int, clues: Sequence[_Numbered]) -> str:
    """One text for all puzzles that renaming and reordering clues makes of one another."""
    return min(_clue_set(clues, letters) for letters in itertools.permutations("abcde"[:people]))


def _clue_set(clues: Sequence[_Numbered], letters: Sequence[str]) -> str:
    renamed = []
    for kind, *people in clues:
        named = [letters[person] for person in people]
        fixed = _RULES[kind].ordered_people
        renamed.append(" ".join([kind, *named[:fixed], *sorted(named[fixed:])]))
    return "; ".join(sorted(renamed))
