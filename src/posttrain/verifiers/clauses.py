"""Sets of clauses: lists of non-zero integers, `3` for a variable and `-3` for its negation (as in DIMACS files).

Unit propagation, and a small search that says whether a set can be satisfied, within a stated number of decisions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

from pydantic import Field

Literal_ = Annotated[int, Field(ge=-100_000, le=100_000)]
Clause = frozenset[int]

MAX_CLAUSES = 1_000


class UndecidedError(Exception):
    """The search used up its decisions."""


def read_clauses(clauses: Iterable[Sequence[int]]) -> list[Clause]:
    """Raises ValueError for the literal 0 and for an empty clause, which would be refuted by nothing."""
    read = [frozenset(clause) for clause in clauses]
    if any(not clause or 0 in clause for clause in read):
        raise ValueError("a clause is a list of integers that is not empty and has no 0")
    return read


class ClauseSet:
    """Clauses that grow by derived ones; propagation costs what it touches."""

    def __init__(self, clauses: Iterable[Clause]) -> None:
        self.clauses: list[Clause] = []
        self._with: dict[int, list[int]] = {}
        for clause in clauses:
            self.add(clause)

    def add(self, clause: Clause) -> None:
        for literal in clause:
            self._with.setdefault(literal, []).append(len(self.clauses))
        self.clauses.append(clause)

    def propagate(self, assumed: Iterable[int]) -> set[int] | None:
        """All literals that unit propagation makes true from those `assumed`; None for a contradiction."""
        true: set[int] = set()
        falsified: dict[int, int] = {}
        queue = [*assumed, *(next(iter(clause)) for clause in self.clauses if len(clause) == 1)]
        while queue:
            literal = queue.pop()
            if -literal in true:
                return None
            if literal in true:
                continue
            true.add(literal)
            for place in self._with.get(-literal, ()):
                falsified[place] = falsified.get(place, 0) + 1
                clause = self.clauses[place]
                if falsified[place] == len(clause):
                    return None
                if falsified[place] == len(clause) - 1:
                    queue.append(next(each for each in clause if -each not in true))
        return true


def is_satisfiable(clauses: Iterable[Clause], max_decisions: int) -> bool:
    """Raises `UndecidedError` after `max_decisions` branchings."""
    found = ClauseSet(clauses)
    decisions = 0
    stack: list[tuple[int, ...]] = [()]
    while stack:
        assumed = stack.pop()
        true = found.propagate(assumed)
        if true is None:
            continue
        open_clause = min((c for c in found.clauses if not c & true), key=lambda c: _open(c, true), default=None)
        if open_clause is None:
            return True
        decisions += 1
        if decisions > max_decisions:
            raise UndecidedError(f"not decided within {max_decisions} decisions")
        literal = min((each for each in open_clause if -each not in true), key=lambda each: (abs(each), each))
        stack += [(*assumed, -literal), (*assumed, literal)]
    return False


def _open(clause: Clause, true: set[int]) -> tuple[int, list[int]]:
    left = [literal for literal in clause if -literal not in true]
    return len(left), sorted(left, key=abs)
