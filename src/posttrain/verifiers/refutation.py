"""Refutations of a clause set, checked step by step.

`gold` is `{"clauses": [[1, -2], …], "rule": …}`; its clauses have the numbers 1 to n. The reply, or its one fenced
block, is lines `N: [literals] from I, J`, numbered on from n + 1: the resolvent of two earlier clauses. Without `from`,
a step must follow by unit propagation (RUP), where the task allows that. The last line derives `[]`. Any refutation is
right: none is stored. It does not look for one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from posttrain.core.types import Json, Verdict
from posttrain.verifiers.clauses import MAX_CLAUSES, Clause, ClauseSet, Literal_, read_clauses
from posttrain.verifiers.fenced import read_fenced
from posttrain.verifiers.final_answer import Refused
from posttrain.verifiers.flags import Flag
from posttrain.verifiers.gold import gold_reader, gold_record

MAX_STEPS = 500
MAX_ANSWER_CHARACTERS = 500

_LITERALS = r"-?[1-9][0-9]{0,5}(?:[ ,]+-?[1-9][0-9]{0,5})*"
_STEP = re.compile(rf"([0-9]{{1,6}})[:.] *\[ *({_LITERALS})? *\](?: +from +([0-9]{{1,6}}) *, *([0-9]{{1,6}}))?")


@gold_record
class RefutationGold:
    """`Refutation`'s gold."""

    clauses: Annotated[tuple[tuple[Literal_, ...], ...], Field(min_length=1, max_length=MAX_CLAUSES)]
    rule: Literal["any", "resolution"] = "any"
    """Whether a step may leave out `from` and follow by unit propagation instead."""

    def __post_init__(self) -> None:
        read_clauses(self.clauses)


_read = gold_reader(RefutationGold, "a clause set")


@dataclass(frozen=True)
class Step:
    """One line of a proof."""

    number: int
    clause: Clause
    parents: tuple[int, int] | None


@dataclass(frozen=True)
class Refutation:
    """Every step follows and the last is the empty clause; the share of steps before the first that fails is a part."""

    version: ClassVar[str] = "1"

    def verify(self, reply: str, gold: Json) -> Verdict:
        wanted: RefutationGold = _read(gold)
        steps = read_steps(reply)
        if isinstance(steps, Refused):
            return steps.verdict()
        fault = check_steps(ClauseSet(read_clauses(wanted.clauses)), steps, propagation=wanted.rule == "any")
        good = len(steps) if fault is None else fault[0]
        shown: dict[str, Any] = {
            "answer": reply.strip()[:MAX_ANSWER_CHARACTERS],
            "parts": {"steps_held": good / len(steps)},
            "evidence": {"steps": len(steps), "held": good},
        }
        if fault is not None:
            return Verdict.incorrect(f"step {good + 1} {fault[1]}", flags=(Flag.FALSE_STEP,), **shown)
        if steps[-1].clause:
            return Verdict.incorrect("the last step is not the empty clause", **shown)
        return Verdict.correct(**shown)


def read_steps(reply: str) -> list[Step] | Refused:
    text = read_fenced(reply, ("proof", "text", ""), "proof")
    if isinstance(text, Refused):
        return text
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) > MAX_STEPS:
        return Refused(f"the proof has {len(lines)} of at most {MAX_STEPS} steps", (Flag.TOO_LONG,))
    steps = []
    for place, line in enumerate(lines, start=1):
        match = _STEP.fullmatch(line)
        if match is None:
            return Refused(f"line {place} is no step 'N: [literals] from I, J'", (Flag.NO_ANSWER,))
        literals = frozenset(map(int, re.findall(r"-?[0-9]+", match[2] or "")))
        steps.append(Step(int(match[1]), literals, (int(match[3]), int(match[4])) if match[3] else None))
    return steps


def check_steps(found: ClauseSet, steps: list[Step], *, propagation: bool) -> tuple[int, str] | None:
    """How many steps hold before the first that does not, and what is wrong with that; None where all hold."""
    for place, step in enumerate(steps):
        if step.number != len(found.clauses) + 1:
            return place, f"must have the number {len(found.clauses) + 1}"
        if step.parents is None:
            if not propagation:
                return place, "does not say which two clauses it is from"
            if found.propagate(-literal for literal in step.clause) is not None:
                return place, "does not follow by unit propagation"
        elif not all(1 <= parent <= len(found.clauses) for parent in step.parents):
            return place, "is from a clause that is not there yet"
        elif not _is_resolvent(step.clause, *(found.clauses[parent - 1] for parent in step.parents)):
            return place, "is no resolvent of its two clauses"
        found.add(step.clause)
    return None


def _is_resolvent(clause: Clause, left: Clause, right: Clause) -> bool:
    return any(clause == (left - {pivot}) | (right - {-pivot}) for pivot in left if -pivot in right)
