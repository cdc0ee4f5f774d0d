"""Puzzles whose answer is an assignment: it is checked against the puzzle's constraints, never against a stored answer.

`gold` is a puzzle in the language of `puzzle.py`. The reply gives every variable a value: as JSON, alone or in its one
fenced block (a table by name, or a list, possibly of rows, in the order in which the puzzle has its variables); or as
`Answer: a=1, b=red` at its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from posttrain.core.types import Json, Verdict
from posttrain.verifiers.exact import read_visible_answer
from posttrain.verifiers.fenced import read_fenced
from posttrain.verifiers.final_answer import Refused
from posttrain.verifiers.flags import Flag
from posttrain.verifiers.json_text import read_json
from posttrain.verifiers.puzzle import Assignment, Domain, Puzzle, Value, read_puzzle

MAX_ANSWER_CHARACTERS = 500


@dataclass(frozen=True)
class Constraints:
    """The reply's assignment keeps every constraint; the share that it keeps is a part."""

    version: ClassVar[str] = "1"

    def verify(self, reply: str, gold: Json) -> Verdict:
        puzzle: Puzzle = read_puzzle(gold)
        given = read_assignment(reply, puzzle)
        if isinstance(given, Refused):
            return given.verdict()
        answer = ", ".join(f"{name}={_text(given[name])}" for name in puzzle.domains())[:MAX_ANSWER_CHARACTERS]
        broken, number = puzzle.broken(given), len(puzzle.constraints)
        shown = {
            "answer": answer,
            "parts": {"constraints_held": 1 - len(broken) / number},
            "evidence": {"constraints": number, "broken": [*broken[:20]]},
        }
        if broken:
            return Verdict.incorrect(f"{len(broken)} of {number} constraints do not hold", **shown)
        return Verdict.correct(**shown)


def read_assignment(reply: str, puzzle: Puzzle) -> Assignment | Refused:
    """A value of its own domain for every variable."""
    domains = puzzle.domains()
    if "```" in reply or reply.lstrip().startswith(("{", "[")):
        text = read_fenced(reply, ("json", ""), "assignment")
        value = text if isinstance(text, Refused) else read_json(text)
        given = value if isinstance(value, Refused) else _from_json(value, [*domains])
    else:
        given = _from_line(reply, domains)
    if isinstance(given, Refused):
        return given
    if outside := puzzle.outside(given):
        return Refused(outside, (Flag.NOT_AN_OPTION,))
    return given


def _from_json(value: Json, names: list[str]) -> Assignment | Refused:
    """Values are as yet of any kind; a list has one for each name, its lists taken together."""
    if isinstance(value, dict):
        return value
    if not isinstance(value, list):
        return Refused("the answer is neither a table nor a list of values", (Flag.NOT_AN_OPTION,))
    flat = [item for part in value for item in (part if isinstance(part, list) else [part])]
    if len(flat) != len(names):
        return Refused(f"the answer has {len(flat)} values for {len(names)} variables", (Flag.NOT_AN_OPTION,))
    return dict(zip(names, flat, strict=True))


def _from_line(reply: str, domains: Mapping[str, Domain]) -> Assignment | Refused:
    text = read_visible_answer(reply)
    if isinstance(text, Refused):
        return text
    given: dict[str, Value] = {}
    for item in text.split(","):
        name, equals, written = (part.strip() for part in item.partition("="))
        if not equals or name not in domains:
            return Refused("the answer is not a list of name=value", (Flag.NOT_AN_OPTION,))
        if name in given:
            return Refused("the answer gives a variable two values", (Flag.SEVERAL_ANSWERS,))
        given[name] = _read_value(written, domains[name])
    return given


def _read_value(written: str, domain: Domain) -> Value:
    """The value of the domain that is written so; else the text itself, which is then outside the domain."""
    if isinstance(domain, range):
        in_range = written.removeprefix("-").isascii() and written.removeprefix("-").isdecimal() and len(written) < 20
        return int(written) if in_range else written
    return next((value for value in domain if _text(value) == written), written)


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
