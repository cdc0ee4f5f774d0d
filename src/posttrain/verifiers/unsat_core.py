"""Claims that some clauses of a set cannot all be satisfied, checked by searching for what satisfies them.

`gold` is `{"clauses": [[1, -2], …], "max_clauses": …, "minimal": …}`; clauses have the numbers 1 to n. The reply ends
with `Answer: 1, 3, 4`. Any such choice is right that is small enough, or of which no clause can be spared, as the task
asks. The search is bounded: what it cannot decide is no verdict.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from posttrain.core.types import Json, Verdict
from posttrain.verifiers.clauses import Clause, Literal_, UndecidedError, is_satisfiable, read_clauses
from posttrain.verifiers.final_answer import Refused
from posttrain.verifiers.flags import Flag
from posttrain.verifiers.gold import gold_reader, gold_record
from posttrain.verifiers.sequence import read_sequence

MAX_CORE_CLAUSES = 200
MAX_DECISIONS = 2_000


@gold_record
class CoreGold:
    """`UnsatCore`'s gold: a set that cannot be satisfied, and what makes a choice from it worth something."""

    clauses: Annotated[tuple[tuple[Literal_, ...], ...], Field(min_length=2, max_length=MAX_CORE_CLAUSES)]
    max_clauses: Annotated[int, Field(ge=1)] | None = None
    minimal: bool = False

    def __post_init__(self) -> None:
        clauses = read_clauses(self.clauses)
        if not self.minimal and (self.max_clauses is None or self.max_clauses >= len(clauses)):
            raise ValueError(
                "all clauses together would be an answer: say how many are allowed, or ask for a minimal core"
            )
        try:
            if is_satisfiable(clauses, MAX_DECISIONS):
                raise ValueError("the clauses can be satisfied, so that there is no core")
        except UndecidedError as error:
            raise ValueError(f"the clauses are too hard: {error}") from None


_read = gold_reader(CoreGold, "a clause set")


@dataclass(frozen=True)
class UnsatCore:
    """The clauses that the reply names contradict one another, as few as the task asks."""

    version: ClassVar[str] = "1"

    def verify(self, reply: str, gold: Json) -> Verdict:
        wanted: CoreGold = _read(gold)
        clauses = read_clauses(wanted.clauses)
        numbers = read_numbers(reply, len(clauses))
        if isinstance(numbers, Refused):
            return numbers.verdict()
        answer = ", ".join(map(str, sorted(numbers)))
        if wanted.max_clauses is not None and len(numbers) > wanted.max_clauses:
            return Verdict.incorrect("the answer has more clauses than are allowed", answer=answer)
        core = [clauses[number - 1] for number in sorted(numbers)]
        try:
            fault = _fault(core, wanted.minimal)
        except UndecidedError as error:
            return Verdict.none(f"the claim was {error}", answer=answer)
        return Verdict.incorrect(fault, answer=answer) if fault else Verdict.correct(answer=answer)


def read_numbers(reply: str, last: int) -> set[int] | Refused:
    """Different clause numbers from 1 to `last`."""
    words = read_sequence(reply)
    if isinstance(words, Refused):
        return words
    if not all(word.isascii() and word.isdecimal() and len(word) <= 6 and 1 <= int(word) <= last for word in words):
        return Refused(f"the answer is not a list of clause numbers from 1 to {last}", (Flag.NOT_AN_OPTION,))
    numbers = set(map(int, words))
    if len(numbers) < len(words):
        return Refused("a clause comes twice", (Flag.REPETITION,))
    return numbers


def _fault(core: list[Clause], minimal: bool) -> str:
    if is_satisfiable(core, MAX_DECISIONS):
        return "the clauses of the answer can be satisfied together"
    spared = minimal and any(
        not is_satisfiable([*core[:place], *core[place + 1 :]], MAX_DECISIONS) for place in range(len(core))
    )
    return "a clause of the answer can be spared" if spared else ""
