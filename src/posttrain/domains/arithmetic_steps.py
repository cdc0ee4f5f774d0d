"""Sums of three numbers whose steps are judged as well: the verdict's part "process" is the share that was shown.

A step `a + b = c` or `a - b = c` stands in a sentence of its own before the answer. It counts when it is true and
takes two terms that are still there: the task's own signed terms, or the result of an earlier step; its result takes
their place. So a true equation about other numbers, or the same one again, is no step, and any order of adding is as
good as another. The first step that does not count ends the counting. Whether the answer is right is judged by itself.
"""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from posttrain.core.protocols import Sandbox
from posttrain.core.types import Json, Limits, Split, Task, Verdict
from posttrain.domains.single_turn import SingleTurnEnvironment
from posttrain.domains.streams import Problem, check_level, draw
from posttrain.verifiers.final_answer import MARKER
from posttrain.verifiers.numeric import verify_number

_LARGEST = {1: 9, 2: 20, 3: 99}
_TOKENS = 48
MAX_STEPS = 16
"""Sentences that are looked at: more than a task of two steps can use."""

_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+|\n+")
_STEP = re.compile(r"(-?[0-9]{1,6}) ([+-]) ([0-9]{1,6}) = (-?[0-9]{1,6})\.?")


@dataclass(frozen=True)
class Steps:
    """How far a chain of steps led."""

    counted: int
    needed: int
    first_wrong: str | None
    """The sentence that ended the counting; None where none did."""

    @property
    def share(self) -> float:
        return self.counted / self.needed


@dataclass(frozen=True)
class ArithmeticSteps:
    """Level 1 numbers up to 9, 2 up to 20, 3 up to 99."""

    name = "arithmetic_steps"
    version = "1"
    licence = "Apache-2.0"
    levels = 3
    needs_sandbox = False

    def task(self, split: Split, seed: int, index: int, level: int) -> Task:
        check_level(self.name, level, self.levels)
        return draw(self.name, split, seed, index, level, lambda state: _problem(state, _LARGEST[level]))

    def environment(self, task: Task, sandbox: Sandbox | None) -> SingleTurnEnvironment:
        return SingleTurnEnvironment(task, _verify, self.version)

    def demonstration(self, task: Task) -> str:
        first, second, third = task.hidden["terms"]
        between = first + second
        steps = [f"{first} {_signed(second)} = {between}", f"{between} {_signed(third)} = {between + third}"]
        return f"{'. '.join(steps)}. {MARKER} {between + third}"


def read_steps(reply: str, terms: Sequence[int]) -> Steps:
    """`terms` are signed; one step fewer than there are terms brings them together."""
    left, needed, counted = list(terms), len(terms) - 1, 0
    for sentence in _SENTENCE_END.split(reply.partition(MARKER)[0].strip())[:MAX_STEPS]:
        if counted == needed or not sentence:
            break
        step = _STEP.fullmatch(sentence.strip())
        taken = None if step is None else _taken(step, left)
        if taken is None:
            return Steps(counted, needed, sentence)
        left, counted = taken, counted + 1
    return Steps(counted, needed, None)


def _taken(step: re.Match[str], left: Sequence[int]) -> list[int] | None:
    """What is left after the step; None where it is untrue or takes what is not there."""
    first, second = int(step[1]), int(step[2] + step[3])
    rest = list(left)
    for term in (first, second):
        if term not in rest:
            return None
        rest.remove(term)
    return [*rest, first + second] if first + second == int(step[4]) else None


def _verify(task: Task, reply: str) -> Verdict:
    verdict = verify_number(reply, sum(task.hidden["terms"]))
    steps = read_steps(reply, task.hidden["terms"])
    evidence: dict[str, Json] = {"steps": steps.counted, "first_wrong": steps.first_wrong}
    return dataclasses.replace(verdict, parts={"process": steps.share}, evidence=evidence)


def _problem(state: random.Random, largest: int) -> Problem | None:
    terms = [state.randint(1, largest), *(state.choice((1, -1)) * state.randint(1, largest) for _ in range(2))]
    if terms[0] + terms[1] < 0 or sum(terms) < 0:
        return None
    text = " ".join([str(terms[0]), *map(_signed, terms[1:])])
    prompt = f"Compute {text}. Show each step. End with 'Answer: N'."
    return Problem(prompt, {"terms": terms}, " ".join(map(str, sorted(terms))), Limits(max_new_tokens=_TOKENS))


def _signed(term: int) -> str:
    return f"{'+' if term >= 0 else '-'} {abs(term)}"
