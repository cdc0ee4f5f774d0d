"""A small declarative language for puzzles: variables with finite domains, and constraints that an assignment keeps.

Enough for sudoku, zebra puzzles, knights and knaves, SAT, map colouring, cages and small schedules. Constraints are one
small record each; what they do not know is an error. Nothing here searches for a solution.
"""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal, Protocol

from pydantic import Field

from posttrain.verifiers.gold import gold_reader, gold_record

MAX_VARIABLES = 1_000
MAX_CONSTRAINTS = 10_000
NUM_GUESSES = 64
"""Drawn assignments of which one at least must break a constraint."""

Number = Annotated[int, Field(ge=-(10**9), le=10**9)]
Value = bool | Number | Annotated[str, Field(min_length=1, max_length=100)]
Name = Annotated[str, Field(min_length=1, max_length=100)]
Names = Annotated[tuple[Name, ...], Field(min_length=1)]
TwoNames = Annotated[tuple[Name, ...], Field(min_length=2)]
Assignment = Mapping[str, Value]
Domain = tuple[Value, ...] | range

Comparison = Literal["=", "!=", "<", "<=", ">", ">="]
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Holds(Protocol):
    """A constraint: the variables it speaks of, those among them that must be numbers, and whether it holds."""

    def names(self) -> Iterator[str]: ...
    def numbers(self) -> Iterator[str]: ...
    def holds(self, given: Assignment) -> bool: ...


class _OfAnything:
    """Speaks of the variables in `of`, whatever their values are."""

    of: Any

    def names(self) -> Iterator[str]:
        yield from self.of

    def numbers(self) -> Iterator[str]:
        yield from ()


class _OfNumbers(_OfAnything):
    def numbers(self) -> Iterator[str]:
        yield from self.names()


def same(left: Value, right: Value) -> bool:
    """Equal, and of one type: true is not 1."""
    return type(left) is type(right) and left == right


def in_domain(value: Value, domain: Domain) -> bool:
    if isinstance(domain, range):
        return type(value) is int and value in domain
    return any(same(value, each) for each in domain)


def _typed(value: Value) -> tuple[type, Value]:
    return type(value), value


@gold_record
class AllDifferent(_OfAnything):
    kind: Literal["all_different"]
    of: TwoNames

    def holds(self, given: Assignment) -> bool:
        return len({_typed(given[name]) for name in self.of}) == len(self.of)


@gold_record
class AllEqual(_OfAnything):
    kind: Literal["all_equal"]
    of: TwoNames

    def holds(self, given: Assignment) -> bool:
        return len({_typed(given[name]) for name in self.of}) == 1


@gold_record
class In(_OfAnything):
    """The variable has one of these values; with one value, it is given."""

    kind: Literal["in"]
    of: Annotated[tuple[Name], Field()]
    values: Annotated[tuple[Value, ...], Field(min_length=1)]

    def holds(self, given: Assignment) -> bool:
        return any(same(given[self.of[0]], value) for value in self.values)


@gold_record
class EdgesDiffer(_OfAnything):
    """The two ends of every edge have different values: a map's neighbours, say."""

    kind: Literal["edges_differ"]
    edges: Annotated[tuple[tuple[Name, Name], ...], Field(min_length=1)]

    def names(self) -> Iterator[str]:
        for edge in self.edges:
            yield from edge

    def holds(self, given: Assignment) -> bool:
        return not any(same(given[left], given[right]) for left, right in self.edges)


@gold_record
class Rows(_OfAnything):
    """The variables' values, in this order, are one of these rows."""

    kind: Literal["rows"]
    of: Names
    rows: Annotated[tuple[tuple[Value, ...], ...], Field(min_length=1)]

    def __post_init__(self) -> None:
        if any(len(row) != len(self.of) for row in self.rows):
            raise ValueError("a row must have a value for each variable")

    def holds(self, given: Assignment) -> bool:
        return any(all(same(given[name], value) for name, value in zip(self.of, row, strict=True)) for row in self.rows)


@gold_record
class Count(_OfAnything):
    """How many of the variables have this value."""

    kind: Literal["count"]
    of: Names
    value: Value
    is_: Annotated[Comparison, Field(alias="is")]
    number: Number

    def holds(self, given: Assignment) -> bool:
        return _COMPARE[self.is_](sum(same(given[name], self.value) for name in self.of), self.number)


@gold_record
class Clause:
    """One of the literals is true: a name, or a name behind `-`, of variables that are true or false."""

    kind: Literal["clause"]
    literals: Names

    def names(self) -> Iterator[str]:
        yield from (literal.removeprefix("-") for literal in self.literals)

    def numbers(self) -> Iterator[str]:
        yield from ()

    def holds(self, given: Assignment) -> bool:
        return any(given[literal.removeprefix("-")] is not literal.startswith("-") for literal in self.literals)


@gold_record
class Linear(_OfNumbers):
    """The sum of factor * variable, compared with a number: `[[1, "a"], [-1, "b"]]` is a - b."""

    kind: Literal["linear"]
    terms: Annotated[tuple[tuple[Number, Name], ...], Field(min_length=1)]
    is_: Annotated[Comparison, Field(alias="is")]
    number: Number

    def names(self) -> Iterator[str]:
        yield from (name for _, name in self.terms)

    def holds(self, given: Assignment) -> bool:
        return _COMPARE[self.is_](sum(factor * int(given[name]) for factor, name in self.terms), self.number)


@gold_record
class Product(_OfNumbers):
    kind: Literal["product"]
    of: TwoNames
    is_: Annotated[Comparison, Field(alias="is")]
    number: Number

    def holds(self, given: Assignment) -> bool:
        return _COMPARE[self.is_](math.prod(int(given[name]) for name in self.of), self.number)


@gold_record
class Distance(_OfNumbers):
    """How far two numbers are apart: neighbours have the distance 1."""

    kind: Literal["distance"]
    of: tuple[Name, Name]
    is_: Annotated[Comparison, Field(alias="is")]
    number: Number

    def holds(self, given: Assignment) -> bool:
        left, right = (int(given[name]) for name in self.of)
        return _COMPARE[self.is_](abs(left - right), self.number)


@gold_record
class Quotient(_OfNumbers):
    """The larger of two positive numbers is `number` times the smaller."""

    kind: Literal["quotient"]
    of: tuple[Name, Name]
    number: Annotated[Number, Field(ge=1)]

    def holds(self, given: Assignment) -> bool:
        small, large = sorted(int(given[name]) for name in self.of)
        return small > 0 and large == small * self.number


@gold_record
class Increasing(_OfNumbers):
    """Each variable is larger than the one before; `weakly`, or as large."""

    kind: Literal["increasing"]
    of: TwoNames
    weakly: bool = False

    def holds(self, given: Assignment) -> bool:
        compare = operator.le if self.weakly else operator.lt
        return all(compare(given[left], given[right]) for left, right in zip(self.of, self.of[1:], strict=False))


@gold_record
class Between(_OfNumbers):
    """The first is between the two others, which may stand in either order."""

    kind: Literal["between"]
    of: tuple[Name, Name, Name]

    def holds(self, given: Assignment) -> bool:
        middle, *ends = (int(given[name]) for name in self.of)
        return min(ends) < middle < max(ends)


@gold_record
class Cumulative(_OfNumbers):
    """Tasks `[start, duration, demand]` of which at no time more than `capacity` is asked for; starts are variables."""

    kind: Literal["cumulative"]
    tasks: Annotated[tuple[tuple[Name, Annotated[Number, Field(ge=1)], Annotated[Number, Field(ge=1)]], ...], Field()]
    capacity: Annotated[Number, Field(ge=1)]

    def __post_init__(self) -> None:
        if sum(demand for *_, demand in self.tasks) <= self.capacity:
            raise ValueError("the capacity is enough for all tasks at once")

    def names(self) -> Iterator[str]:
        yield from (name for name, *_ in self.tasks)

    def holds(self, given: Assignment) -> bool:
        spans = [(int(given[name]), int(given[name]) + length, demand) for name, length, demand in self.tasks]
        # Demand only grows where a task begins.
        used = (sum(demand for start, end, demand in spans if start <= now < end) for now, *_ in spans)
        return all(demand <= self.capacity for demand in used)


class _OfConstraints:
    """Speaks of what its parts speak of."""

    of: Any

    def names(self) -> Iterator[str]:
        for part in self.of:
            yield from part.names()

    def numbers(self) -> Iterator[str]:
        for part in self.of:
            yield from part.numbers()


@gold_record
class Not(_OfConstraints):
    kind: Literal["not"]
    of: tuple[Constraint]

    def holds(self, given: Assignment) -> bool:
        return not self.of[0].holds(given)


@gold_record
class Holding(_OfConstraints):
    """How many of the constraints hold: all and any are counts too."""

    kind: Literal["holding"]
    of: Annotated[tuple[Constraint, ...], Field(min_length=1)]
    is_: Annotated[Comparison, Field(alias="is")]
    number: Number

    def holds(self, given: Assignment) -> bool:
        return _COMPARE[self.is_](sum(part.holds(given) for part in self.of), self.number)


@gold_record
class If(_OfConstraints):
    """`[when, then]`: where the first holds, the second does."""

    kind: Literal["if"]
    of: tuple[Constraint, Constraint]

    def holds(self, given: Assignment) -> bool:
        return not self.of[0].holds(given) or self.of[1].holds(given)


@gold_record
class Iff(_OfConstraints):
    """Both hold or neither does."""

    kind: Literal["iff"]
    of: tuple[Constraint, Constraint]

    def holds(self, given: Assignment) -> bool:
        return self.of[0].holds(given) == self.of[1].holds(given)


Constraint = Annotated[
    AllDifferent
    | AllEqual
    | In
    | EdgesDiffer
    | Rows
    | Count
    | Clause
    | Linear
    | Product
    | Distance
    | Quotient
    | Increasing
    | Between
    | Cumulative
    | Not
    | Holding
    | If
    | Iff,
    Field(discriminator="kind"),
]


@gold_record
class Variables:
    """Names that have one domain: its values, or the numbers `from` … `to`."""

    names: Annotated[tuple[Name, ...], Field(min_length=1, max_length=MAX_VARIABLES)]
    domain: tuple[Value, ...] | tuple[()] = ()
    first: Annotated[Number | None, Field(alias="from")] = None
    last: Annotated[Number | None, Field(alias="to")] = None

    def __post_init__(self) -> None:
        ranged = self.first is not None and self.last is not None
        if ranged == bool(self.domain) or (self.first is None) != (self.last is None):
            raise ValueError("a domain is either a list of values or the numbers from … to")
        if len(self.values()) < 2:
            raise ValueError("a domain must have two values at least")

    def values(self) -> Domain:
        if self.first is not None and self.last is not None:
            return range(self.first, self.last + 1)
        return self.domain


@gold_record
class Puzzle:
    """Variables in order, constraints, and perhaps a solution, which only shows that there is one."""

    variables: Annotated[tuple[Variables, ...], Field(min_length=1)]
    constraints: Annotated[tuple[Constraint, ...], Field(min_length=1, max_length=MAX_CONSTRAINTS)]
    solution: dict[str, Value] | None = None

    def __post_init__(self) -> None:
        domains = self.domains()
        if len(domains) != sum(len(group.names) for group in self.variables):
            raise ValueError("a variable is named twice")
        for constraint in self.constraints:
            self._check_names(constraint, domains)
        state = random.Random(0)
        guesses = ({name: state.choice(values) for name, values in domains.items()} for _ in range(NUM_GUESSES))
        if not any(self.broken(guess) for guess in guesses):
            raise ValueError("the constraints rule hardly anything out: every guess kept to them")
        if self.solution is not None and (self.outside(self.solution) or self.broken(self.solution)):
            raise ValueError("the puzzle's own solution does not solve it")

    def domains(self) -> dict[str, Domain]:
        return {name: group.values() for group in self.variables for name in group.names}

    def outside(self, given: Assignment) -> str:
        """A sentence where `given` does not give every variable one of its values, and no other."""
        domains = self.domains()
        if given.keys() != domains.keys():
            return "the answer does not name each variable once"
        wrong = sum(not in_domain(given[name], domain) for name, domain in domains.items())
        return f"{wrong} of {len(domains)} variables have a value that they cannot have" if wrong else ""

    def broken(self, given: Assignment) -> list[int]:
        """Places of the constraints that do not hold of an assignment that is not `outside`."""
        return [place for place, constraint in enumerate(self.constraints) if not constraint.holds(given)]

    def _check_names(self, constraint: Holds, domains: Mapping[str, Domain]) -> None:
        if unknown := sorted(set(constraint.names()) - domains.keys()):
            raise ValueError(f"there is no variable {unknown[0]!r}")
        for name in constraint.numbers():
            if not isinstance(domains[name], range) and not all(type(value) is int for value in domains[name]):
                raise ValueError(f"{name!r} stands where a number must, and its values are others")
        if isinstance(constraint, Clause) and any(
            not all(type(value) is bool for value in domains[name]) for name in constraint.names()
        ):
            raise ValueError("a clause speaks of a variable that is not true or false")


read_puzzle: Callable[[Any], Puzzle] = gold_reader(Puzzle, "a puzzle")
