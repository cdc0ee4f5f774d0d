"""Regions of the real line: unions of intervals between constants, in order and without overlap."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from posttrain.verifiers.math.expression import INFINITY, Expression, Symbol, is_infinite, negative
from posttrain.verifiers.math.numeric import Undecided, Undefined, identical, real_value
from posttrain.verifiers.math.tokens import Unreadable

PLUS_INFINITY = Symbol(INFINITY)
MINUS_INFINITY = negative(PLUS_INFINITY)


@dataclass(frozen=True)
class Interval:
    """An infinite end is open. Raises `Unreadable` for ends that are no real constants."""

    low: Expression
    high: Expression
    low_closed: bool = False
    high_closed: bool = False

    @cached_property
    def ends(self) -> tuple[tuple[Any, int], tuple[Any, int]]:
        """Positions that can be ordered: where it is closed below, it begins a little earlier."""
        low_closed = self.low_closed and not is_infinite(self.low)
        high_closed = self.high_closed and not is_infinite(self.high)
        return (_position(self.low), -int(low_closed)), (_position(self.high), int(high_closed))

    @property
    def is_empty(self) -> bool:
        (low, low_shift), (high, high_shift) = self.ends
        return bool(low > high or (low == high and (low_shift, high_shift) != (-1, 1)))

    def same(self, other: Interval) -> bool:
        pairs = ((self.low, other.low), (self.high, other.high))
        shifts = [[end[1] for end in interval.ends] for interval in (self, other)]
        return shifts[0] == shifts[1] and all(_same_end(*pair) for pair in pairs)


@dataclass(frozen=True)
class Region:
    intervals: tuple[Interval, ...]

    @classmethod
    def of(cls, intervals: Iterable[Interval]) -> Region:
        """Their union."""
        merged: list[Interval] = []
        for interval in sorted((one for one in intervals if not one.is_empty), key=lambda one: one.ends):
            if merged and _touch(merged[-1], interval):
                last = merged.pop()
                wider = max(last, interval, key=lambda one: one.ends[1])
                merged.append(Interval(last.low, wider.high, last.low_closed, wider.high_closed))
            else:
                merged.append(interval)
        return cls(tuple(merged))

    def union(self, other: Region) -> Region:
        return Region.of((*self.intervals, *other.intervals))

    def intersection(self, other: Region) -> Region:
        found = []
        for one in self.intervals:
            for two in other.intervals:
                low, high = max(one, two, key=lambda it: it.ends[0]), min(one, two, key=lambda it: it.ends[1])
                found.append(Interval(low.low, high.high, low.low_closed, high.high_closed))
        return Region.of(found)

    def complement(self) -> Region:
        found, low, low_closed = [], MINUS_INFINITY, False
        for interval in self.intervals:
            found.append(Interval(low, interval.low, low_closed, not interval.low_closed))
            low, low_closed = interval.high, not interval.high_closed
        return Region.of([*found, Interval(low, PLUS_INFINITY, low_closed)])

    def same(self, other: Region) -> bool:
        pairs = zip(self.intervals, other.intervals, strict=False)
        return len(self.intervals) == len(other.intervals) and all(one.same(two) for one, two in pairs)


REALS = Region((Interval(MINUS_INFINITY, PLUS_INFINITY),))


def point(value: Expression) -> Interval:
    return Interval(value, value, True, True)


def _position(end: Expression) -> Any:
    try:
        return real_value(end)
    except (Undefined, Undecided):
        raise Unreadable("an end of an interval is no real constant") from None


def _same_end(left: Expression, right: Expression) -> bool:
    if is_infinite(left) or is_infinite(right):
        return bool(_position(left) == _position(right))
    return identical(left, right) is True


def _touch(left: Interval, right: Interval) -> bool:
    """Whether there is nothing between two intervals, of which `left` begins first."""
    (end, closed), (begin, opened) = left.ends[1], right.ends[0]
    return bool(begin < end or (begin == end and (closed == 1 or opened == -1)))
