"""Families of small functions: which parts fit together, how the whole is said, written and computed.

A wrong sibling of a program is one with a single part exchanged or forgotten; its inputs are drawn where siblings
differ. Three shapes of argument: a number (or two), a list of numbers, a text.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from posttrain.core.seeding import stable_random
from posttrain.core.types import Json
from posttrain.domains.program_pieces import (
    COMBINATIONS,
    FILTERS,
    LETTERS,
    MEASURES,
    NEAR_FILTERS,
    NEAR_STEPS,
    NEAR_TRANSFORMS,
    NOTHING,
    PRODUCT,
    REDUCES,
    REPLACEMENTS,
    STEPS,
    SUM,
    TRANSFORMS,
    Code,
    Piece,
)

Pieces = tuple[Piece, ...]
Arguments = list[Json]


class Family(Protocol):
    """How programs of one shape are drawn, said, written, computed and probed."""

    @property
    def arguments(self) -> str:
        """As they stand in `def f(…)`."""
        ...

    @property
    def slots(self) -> tuple[tuple[Piece, ...], ...]: ...

    @property
    def probes(self) -> Sequence[Arguments]:
        """Fixed inputs on which two functions of the family agree only if they are the same function."""
        ...

    def draw(self, state: random.Random) -> Pieces | None: ...

    def task(self, pieces: Pieces, state: random.Random) -> str:
        """What the function does, after "a Python function f(…) that"."""
        ...

    def code(self, pieces: Pieces) -> str: ...

    def compute(self, pieces: Pieces, arguments: Arguments) -> Json: ...

    def inputs(self, pieces: Pieces, state: random.Random) -> list[Arguments]:
        """Candidates for hidden tests, the most telling first."""
        ...


def siblings(family: Family, pieces: Pieces) -> Iterator[Pieces]:
    """Every program with exactly one part exchanged."""
    for place, slot in enumerate(family.slots):
        for other in slot:
            if other is not pieces[place]:
                yield (*pieces[:place], other, *pieces[place + 1 :])


def _edges(pieces: Pieces) -> list[int]:
    return [edge for piece in pieces for edge in piece.edges]


def _program(arguments: str, expression: str) -> str:
    header = "import math\n" if expression.startswith("math.") else ""
    return f"{header}def f({arguments}):\n    return {expression}"


@dataclass(frozen=True)
class Scalars:
    """One number through two steps: x times 3 plus 2."""

    arguments = "x"
    slots = ((*STEPS, *NEAR_STEPS, NOTHING), (*STEPS, *NEAR_STEPS, NOTHING))
    probes = tuple([x] for x in range(-45, 46))

    def draw(self, state: random.Random) -> Pieces | None:
        steps = (state.choice(STEPS), state.choice(STEPS))
        if steps[0].kind == steps[1].kind or steps[0].binds == steps[1].binds == SUM:
            return None  # two steps that are one
        return steps

    def task(self, pieces: Pieces, state: random.Random) -> str:
        one, two = pieces
        if one.infix and two.infix and one.binds >= PRODUCT and two.binds == SUM and state.random() < 0.5:
            return f"returns x {one.infix} {two.infix}"
        return f"{one.verb.format('x')}, {two.verb.format('the result')} and returns it"

    def code(self, pieces: Pieces) -> str:
        return _program(self.arguments, Code("x").then(pieces[0]).then(pieces[1]).text)

    def compute(self, pieces: Pieces, arguments: Arguments) -> Json:
        return pieces[1].apply(pieces[0].apply(arguments[0]))

    def inputs(self, pieces: Pieces, state: random.Random) -> list[Arguments]:
        values = [0, 1, -1, 2, 5, -7, *(state.randint(-30, 30) for _ in range(3)), *_edges(pieces)]
        return [[value] for value in dict.fromkeys([*values, *range(-40, 41, 5)])]


@dataclass(frozen=True)
class Pairs:
    """Two numbers into one, then a step."""

    arguments = "a, b"
    slots = (COMBINATIONS, (*STEPS, *NEAR_STEPS, NOTHING))
    probes = tuple([a, b] for a in range(-9, 10, 2) for b in (-24, -8, -3, 0, 1, 2, 5, 7, 16, 31))

    def draw(self, state: random.Random) -> Pieces | None:
        return state.choice(COMBINATIONS), state.choice(STEPS)

    def task(self, pieces: Pieces, state: random.Random) -> str:
        return f"{pieces[0].verb}, {pieces[1].verb.format('the result')} and returns it"

    def code(self, pieces: Pieces) -> str:
        return _program(self.arguments, Code(pieces[0].code, pieces[0].binds).then(pieces[1]).text)

    def compute(self, pieces: Pieces, arguments: Arguments) -> Json:
        return pieces[1].apply(pieces[0].apply(*arguments))

    def inputs(self, pieces: Pieces, state: random.Random) -> list[Arguments]:
        fixed: list[Arguments] = [[0, 0], [3, 5], [5, 3], [-4, 2], [2, -9], [7, 7]]
        return [*fixed, *([state.randint(-20, 20), state.randint(-20, 20)] for _ in range(20))]


@dataclass(frozen=True)
class Lists:
    """Numbers filtered, mapped, reduced. `parts` of 1 has a filter or a map, 2 has both."""

    parts: int

    arguments = "xs"
    slots = ((*FILTERS, *NEAR_FILTERS, NOTHING), (*STEPS, *NEAR_STEPS, NOTHING), REDUCES)

    @property
    def probes(self) -> Sequence[Arguments]:
        return _LIST_PROBES

    def draw(self, state: random.Random) -> Pieces | None:
        kept, step, reduce = state.choice(FILTERS), state.choice(STEPS), state.choice(REDUCES)
        if self.parts == 1:
            kept, step = (kept, NOTHING) if state.random() < 0.5 else (NOTHING, step)
        return None if reduce.kind == "count" and step is not NOTHING else (kept, step, reduce)

    def task(self, pieces: Pieces, state: random.Random) -> str:
        kept, step, reduce = pieces
        phrase = "the numbers in xs" if kept is NOTHING else state.choice(kept.words).format("xs")
        phrase = phrase if step is NOTHING else state.choice(step.words).format(phrase)
        return f"returns {state.choice(reduce.words).format(phrase)}"

    def code(self, pieces: Pieces) -> str:
        kept, step, reduce = pieces
        condition = "" if kept is NOTHING else f" if {Code('x').then(kept).text}"
        each = f"{Code('x').then(step).text} for x in xs{condition}"
        return _program(self.arguments, reduce.code.replace("{}", each))

    def compute(self, pieces: Pieces, arguments: Arguments) -> Json:
        kept, step, reduce = pieces
        return reduce.apply([step.apply(x) for x in arguments[0] if kept is NOTHING or kept.apply(x)])

    def inputs(self, pieces: Pieces, state: random.Random) -> list[Arguments]:
        edges = _edges(pieces) or [4, 9]
        passing = [x for x in range(-24, 37) if x and (pieces[0] is NOTHING or pieces[0].apply(x))]
        one, two, three = state.sample(passing, 3)
        mixed = [[state.randint(-12, 30) for _ in range(state.randint(3, 6))] for _ in range(4)]
        lists = [[], [0], edges, [one, two, three, one], [-3, 5, -8], *mixed, [-8, -3], [1, 2], [two]]
        return [[values] for values in [*lists, *([edge] for edge in edges), *([x] for x in range(-13, 31))]]


@dataclass(frozen=True)
class Texts:
    """A text changed and measured, or changed twice: what is changed second works on single letters, so that both
    readings of "the first 3 characters of s with every 'a' replaced by 'o'" are one function."""

    arguments = "s"
    slots = ((*TRANSFORMS, *NEAR_TRANSFORMS, NOTHING), (*REPLACEMENTS, NOTHING), MEASURES)

    @property
    def probes(self) -> Sequence[Arguments]:
        return _TEXT_PROBES

    def draw(self, state: random.Random) -> Pieces | None:
        if state.random() < 0.5:
            cuts = [piece for piece in TRANSFORMS if piece.kind in ("reversed", "first", "last", "repeated")]
            return state.choice(cuts), state.choice(REPLACEMENTS), MEASURES[0]
        return _of_some_kind(TRANSFORMS, state), NOTHING, _of_some_kind(MEASURES, state)

    def task(self, pieces: Pieces, state: random.Random) -> str:
        phrase = "s"
        for piece in pieces:
            phrase = phrase if piece is NOTHING else state.choice(piece.words).format(phrase)
        return f"returns {phrase}"

    def code(self, pieces: Pieces) -> str:
        return _program(self.arguments, Code("s").then(pieces[0]).then(pieces[1]).then(pieces[2]).text)

    def compute(self, pieces: Pieces, arguments: Arguments) -> Json:
        text = arguments[0]
        for piece in pieces:
            text = piece.apply(text)
        return text

    def inputs(self, pieces: Pieces, state: random.Random) -> list[Arguments]:
        drawn = ["".join(state.choices(LETTERS, k=state.randint(5, 12))) for _ in range(20)]
        fixed = ["", "a", "Banana", "tree house", LETTERS, LETTERS[::-1] + "st"]
        return [[text] for text in [*fixed, *drawn[:2], *_ROTATIONS, *drawn[2:]]]


def _of_some_kind(pieces: Sequence[Piece], state: random.Random) -> Piece:
    """Every kind alike, whatever the number of its constants."""
    kind = state.choice(sorted({piece.kind for piece in pieces}))
    return state.choice([piece for piece in pieces if piece.kind == kind])


def _list_probes() -> tuple[Arguments, ...]:
    state = stable_random("list probes")
    drawn = [[state.randint(-15, 30) for _ in range(state.randint(2, 6))] for _ in range(40)]
    return tuple([values] for values in [[], *([x] for x in range(-31, 41)), *drawn])


def _text_probes() -> tuple[Arguments, ...]:
    state = stable_random("text probes")
    drawn = ["".join(state.choices(LETTERS + "bd E", k=state.randint(1, 14))) for _ in range(40)]
    return tuple([text] for text in ["", *LETTERS, LETTERS, *_ROTATIONS, *drawn])


_ROTATIONS = tuple(LETTERS[start:] + LETTERS[:start] for start in range(1, len(LETTERS)))
"""With LETTERS itself they have every letter at every place, which tells where a text was cut."""
_LIST_PROBES = _list_probes()
_TEXT_PROBES = _text_probes()
