"""Whether two answers say the same. Symmetric: which of the two is the gold makes no difference.

Exact arithmetic comes first, then values to many digits (`numeric.py`); text is compared as text, and Math-Verify is
asked only about what this grammar cannot read (`library.py`). What cannot be decided is not the same.
"""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import dataclass
from fractions import Fraction

from posttrain.verifiers.math.answers import (
    Answer,
    Choice,
    Colon,
    Domain,
    Empty,
    Kind,
    Matrix,
    Named,
    Readings,
    Relation,
    Sequence,
    Text,
    Unread,
    Untrue,
    Value,
)
from posttrain.verifiers.math.exact import NotRational, TooLarge, folded, plain, rational, same_large, undone
from posttrain.verifiers.math.expression import Expression, Symbol, apply, is_infinite, negative, number, variables
from posttrain.verifiers.math.intervals import Region
from posttrain.verifiers.math.items import region_of
from posttrain.verifiers.math.numeric import identical, proportional
from posttrain.verifiers.math.tokens import Unreadable

MAX_ITEMS = 60
"""Of a list or set: two of this length are compared item by item."""


@dataclass
class Comparison:
    """Compares, and remembers what it took."""

    symbolic: bool = False
    """Expressions had to be compared: they were neither the same text nor rational numbers."""
    undecided: bool = False
    """A value was too large, or there was no point to compare at."""
    unevaluated: bool = False
    """One side is a value, the other is arithmetic that gives it."""

    def any_same(self, left: Readings, right: Readings) -> bool:
        return any(self.same(one, two) for one in left for two in right)

    def same(self, left: Answer, right: Answer) -> bool:  # noqa: PLR0911 - one line for each pair of kinds
        if isinstance(left, Untrue | Empty | Unread) or isinstance(right, Untrue | Empty | Unread):
            return isinstance(left, Unread) and left == right
        if isinstance(left, Choice) or isinstance(right, Choice):
            return self._same_choices(left, right)
        if isinstance(left, Named) or isinstance(right, Named):
            return self._same_named(left, right)
        if isinstance(left, Value) and isinstance(right, Value):
            return self._same_values(left, right)
        if isinstance(left, Domain) or isinstance(right, Domain):
            return self._same_regions(left, right)
        if isinstance(left, Matrix) or isinstance(right, Matrix):
            return self._same_matrices(left, right)
        if isinstance(left, Sequence) or isinstance(right, Sequence):
            return self._same_sequences(left, right)
        if isinstance(left, Relation) and isinstance(right, Relation):
            return self._same_relations(left, right)
        if isinstance(left, Colon) and isinstance(right, Colon):
            suffixes = {left.suffix, right.suffix} - {""}
            return left.parts == right.parts and len(suffixes) < 2
        return isinstance(left, Text) and left == right

    def same_expressions(self, left: Expression, right: Expression) -> bool:  # noqa: PLR0911 - one line for each case
        if left == right:
            return True
        if is_infinite(left) or is_infinite(right):
            return is_infinite(left) and is_infinite(right) and isinstance(left, Symbol) == isinstance(right, Symbol)
        values = [_exact(left), _exact(right)]
        exact = [value for value in values if isinstance(value, Fraction)]
        if len(exact) == 2:
            equal = exact[0] == exact[1]
            if equal and ((plain(left) and undone(right)) or (plain(right) and undone(left))):
                self.unevaluated = True
                return False
            return equal
        large = [value for value in values if isinstance(value, TooLarge)]
        if len(large) == 1 and len(exact) == 1:
            self.undecided |= large[0].bits is None or large[0].bits <= _bits(exact[0])
            return False
        if large:
            return len(large) == 2 and self._same_large(left, right)
        self.symbolic = True
        decided = identical(left, right)
        self.undecided |= decided is None
        return decided is True

    def _same_large(self, left: Expression, right: Expression) -> bool:
        try:
            return same_large(left, right)
        except TooLarge:
            self.undecided = True
            return False

    def _same_values(self, left: Value, right: Value) -> bool:
        if left.measure is None or right.measure is None or left.measure == right.measure:
            return self.same_expressions(left.expression, right.expression)
        if left.measure.powers != right.measure.powers:
            return False
        one, two = (
            folded(apply("mul", number(value.measure.factor), value.expression)) if value.measure else value.expression
            for value in (left, right)
        )
        return self.same_expressions(one, two)

    def _same_choices(self, left: Answer, right: Answer) -> bool:
        if not isinstance(right, Choice):
            left, right = right, left
        assert isinstance(right, Choice)
        if isinstance(left, Choice):
            contents = left.content is None or right.content is None or self.same(left.content, right.content)
            return left.letter == right.letter and contents
        return right.content is not None and self.same(left, right.content)

    def _same_named(self, left: Answer, right: Answer) -> bool:
        if isinstance(left, Named) and isinstance(right, Named):
            if left.name == right.name:
                return self.same(left.answer, right.answer)
            return self._same_relations(_relation(left), _relation(right))
        named, other = (left, right) if isinstance(left, Named) else (right, left)
        assert isinstance(named, Named)
        if isinstance(other, Relation):
            relation = _relation(named)
            solved = relation is not None and len(variables(relation.difference)) < 2
            return not solved and self._same_relations(relation, other)
        if isinstance(other, Domain) and other.name not in (None, named.name):
            return False
        return self.same(named.answer, other)

    def _same_regions(self, left: Answer, right: Answer) -> bool:
        names = {side.name for side in (left, right) if isinstance(side, Domain)} - {None}
        if len(names) > 1:
            return False
        try:
            return _region(left).same(_region(right))
        except Unreadable:
            return False

    def _same_matrices(self, left: Answer, right: Answer) -> bool:
        if isinstance(left, Matrix) and isinstance(right, Matrix):
            pairs = [
                (one, two) for row in zip(left.rows, right.rows, strict=False) for one, two in zip(*row, strict=False)
            ]
            shapes = {(len(side.rows), len(side.rows[0])) for side in (left, right)}
            return len(shapes) == 1 and all(self.same_expressions(*pair) for pair in pairs)
        matrix, other = (left, right) if isinstance(left, Matrix) else (right, left)
        assert isinstance(matrix, Matrix)
        if not isinstance(other, Sequence) or other.kind is not Kind.TUPLE or len(matrix.rows[0]) != 1:
            return False
        return self._in_order([Value(row[0]) for row in matrix.rows], other.items)

    def _same_relations(self, left: Relation | None, right: Relation | None) -> bool:
        if left is None or right is None or left.operator != right.operator:
            return False
        self.symbolic = True
        ratio = proportional(left.difference, right.difference)
        return ratio is not None and (ratio > 0 or left.operator in ("=", "!="))

    def _same_sequences(self, left: Answer, right: Answer) -> bool:
        if not (isinstance(left, Sequence) and isinstance(right, Sequence)):
            sequence, other = (left, right) if isinstance(left, Sequence) else (right, left)
            assert isinstance(sequence, Sequence)
            single = sequence.kind is Kind.SET and len(sequence.items) == 1
            return single and self.same(sequence.items[0], other)
        one, two = left.items, right.items
        kinds = {left.kind, right.kind}
        if max(len(one), len(two)) > MAX_ITEMS:
            self.undecided = True
            return False
        if Kind.SET in kinds and kinds <= {Kind.SET, Kind.LIST}:
            return self._covers(one, two) and self._covers(two, one)
        named = [_all_named(one), _all_named(two)]
        if kinds <= {Kind.LIST, Kind.TUPLE} and any(named) and not all(named):
            return self._in_order(_by_name(left), _by_name(right))
        if kinds == {Kind.LIST} or (kinds <= {Kind.LIST, Kind.TUPLE} and all(named)):
            return self._in_any_order(one, two)
        return (len(kinds) == 1 or kinds == {Kind.TUPLE, Kind.LIST}) and self._in_order(one, two)

    def _in_order(self, left: Items[Answer], right: Items[Answer]) -> bool:
        return len(left) == len(right) and all(self.same(*pair) for pair in zip(left, right, strict=True))

    def _in_any_order(self, left: Items[Answer], right: Items[Answer]) -> bool:
        if len(left) != len(right):
            return False
        waiting = list(right)
        for one in left:
            found = next((at for at, two in enumerate(waiting) if self.same(one, two)), None)
            if found is None:
                return False
            del waiting[found]
        return True

    def _covers(self, left: Items[Answer], right: Items[Answer]) -> bool:
        return all(any(self.same(one, two) for two in left) for one in right)


def _exact(expression: Expression) -> Fraction | TooLarge | None:
    try:
        return rational(expression)
    except TooLarge as large:
        return large
    except NotRational:
        return None


def _bits(value: Fraction) -> int:
    return max(1, abs(value.numerator).bit_length() - value.denominator.bit_length() + 1)


def _region(answer: Answer) -> Region:
    """Inequalities with a comma between are a union."""
    if isinstance(answer, Sequence) and all(isinstance(item, Domain) for item in answer.items) and answer.items:
        region = region_of(answer.items[0])
        for item in answer.items[1:]:
            region = region.union(region_of(item))
        return region
    return region_of(answer)


def _all_named(items: Items[Answer]) -> bool:
    return bool(items) and all(isinstance(item, Named) for item in items)


def _by_name(sequence: Sequence) -> tuple[Answer, ...]:
    """Names give a list an order: `y = 2, x = 1` is (1, 2)."""
    if sequence.kind is Kind.LIST and _all_named(sequence.items):
        return tuple(sorted(sequence.items, key=lambda item: item.name if isinstance(item, Named) else ""))
    return sequence.items


def _relation(named: Named) -> Relation | None:
    if not isinstance(named.answer, Value):
        return None
    return Relation("=", apply("add", Symbol(named.name), negative(named.answer.expression)))
