"""Which tokens go through the model together: samples → trees → rows → micro-batches, for each rank.

Samples of one group with the same prefix form a tree: the prefix once, then the completions. Trees are dealt to the
ranks by length, then packed into rows of at most `row_tokens` positions, and rows into micro-batches. The plan is a
pure function of the samples, so that every rank finds the same one without talking. It moves no tokens and builds
no tensors (`learn/pack.py` does).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from posttrain.core.types import Sample

MICRO_BATCH_OVERHEAD = 64
"""Positions that one more backward pass costs: the dense gradient of embedding and head, whatever the batch."""
DENSE_POSITIONS = 2048
"""Rows of several samples up to this length are attended under a dense mask, longer ones part by part."""
ROW_FACTORS = (1.0, 1.125, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0)
"""Row lengths that are tried, in lengths of the longest sample."""


@dataclass(frozen=True)
class Span:
    """The part of a sample that the model must see: inputs before its last trainable token."""

    sample: int
    """Index into the step's samples."""
    prefix: int
    """Tokens before the first trainable one."""
    end: int
    """Index of the last trainable token: a target only, never an input."""

    @property
    def completion(self) -> int:
        """Input positions after the prefix."""
        return self.end - self.prefix


@dataclass(frozen=True)
class Tree:
    """Spans of one group that share their prefix, which is computed once."""

    spans: tuple[Span, ...]

    @property
    def prefix(self) -> int:
        return self.spans[0].prefix

    @property
    def length(self) -> int:
        return self.prefix + sum(span.completion for span in self.spans)

    @property
    def num_pairs(self) -> float:
        """Of a query and a key that it sees."""
        own = sum(span.completion * (self.prefix + span.completion / 2) for span in self.spans)
        return self.prefix**2 / 2 + own


Row = tuple[Tree, ...]
MicroBatch = tuple[Row, ...]


@dataclass(frozen=True)
class LayoutOptions:
    micro_batch_tokens: int = 4096
    """Positions of one forward and backward pass, padding included; a longer sample makes a pass of its own."""
    row_tokens: int = 0
    """Positions of one row, `micro_batch_tokens` at most; 0 computes what costs least. 1 gives each sample a row and
    shares nothing."""
    hidden_size: int = 576
    """Of the model: what attention costs beside its matrix products."""

    def cost(self, batch: MicroBatch) -> float:
        """In positions: attention over a row of T costs as much as the other products at T = 3 hidden sizes.

        Per layer and token the products of a Llama-like block take about 24 h² operations (12 h² weights) and
        dense attention 4 h T, at about half the speed on a CPU. In parts, only pairs that see each other cost.
        """
        width = max(map(_row_length, batch))
        if attends_in_parts(width):
            num_pairs = sum(tree.num_pairs for row in batch for tree in row)
            return len(batch) * width + num_pairs / (3.0 * self.hidden_size) + MICRO_BATCH_OVERHEAD
        return len(batch) * width * (1.0 + width / (3.0 * self.hidden_size)) + MICRO_BATCH_OVERHEAD


def attends_in_parts(width: int) -> bool:
    """Whether attention over rows of `width` positions that hold several samples goes part by part."""
    return width > DENSE_POSITIONS


def layout(samples: Sequence[Sample], world_size: int, options: LayoutOptions) -> list[list[MicroBatch]]:
    """Micro-batches of each rank; samples without a trainable token are in none."""
    trees = _trees(samples)
    if not trees:
        return [[] for _ in range(world_size)]
    longest = max(tree.prefix + span.completion for tree in trees for span in tree.spans)
    if options.row_tokens:
        widths = {options.row_tokens}
    else:
        widths = {min(int(longest * factor), _widest(longest, options)) for factor in ROW_FACTORS}
    plans = [_plan(trees, world_size, width, options) for width in sorted(widths)]
    return min(plans, key=lambda ranks: max(sum(map(options.cost, rank)) for rank in ranks))


def _widest(longest: int, options: LayoutOptions) -> int:
    """Short samples stay under a dense mask: a kernel call for each of many small parts is not what the cost counts."""
    budget = options.micro_batch_tokens
    return max(longest, budget if attends_in_parts(2 * longest) else min(budget, DENSE_POSITIONS))


def _trees(samples: Sequence[Sample]) -> list[Tree]:
    found: dict[tuple[str, bytes], list[Span]] = {}
    for index, sample in enumerate(samples):
        places = np.flatnonzero(sample.trainable)
        if len(places):
            span = Span(index, int(places[0]), int(places[-1]))
            found.setdefault((sample.group_id, sample.tokens[: span.prefix].tobytes()), []).append(span)
    return [Tree(tuple(spans)) for spans in found.values()]


def _plan(trees: Iterable[Tree], world_size: int, width: int, options: LayoutOptions) -> list[list[MicroBatch]]:
    pieces = [piece for tree in trees for piece in _split(tree, width)]
    dealt: list[list[Tree]] = [[] for _ in range(world_size)]
    loads = [0] * world_size
    for piece in sorted(pieces, key=lambda tree: -tree.length):  # longest first, to the least loaded rank
        rank = loads.index(min(loads))
        dealt[rank].append(piece)
        loads[rank] += piece.length
    return [
        _micro_batches(_rows(pieces, min(width, options.micro_batch_tokens)), options.micro_batch_tokens)
        for pieces in dealt
    ]


def _split(tree: Tree, width: int) -> list[Tree]:
    """Trees of at most `width` positions each where one span allows it; the prefix is repeated in each."""
    pieces: list[list[Span]] = []
    room = -1
    for span in tree.spans:
        if not pieces or span.completion > room:
            pieces.append([])
            room = width - tree.prefix
        pieces[-1].append(span)
        room -= span.completion
    return [Tree(tuple(piece)) for piece in pieces]


def _rows(trees: Sequence[Tree], width: int) -> list[Row]:
    """First fit; `trees` come longest first, and one longer than `width` gets a row of its own."""
    rows: list[list[Tree]] = []
    rooms: list[int] = []
    for tree in trees:
        place = next((index for index, room in enumerate(rooms) if room >= tree.length), None)
        if place is None:
            rows.append([tree])
            rooms.append(width - tree.length)
        else:
            rows[place].append(tree)
            rooms[place] -= tree.length
    return [tuple(row) for row in rows]


def _micro_batches(rows: Sequence[Row], micro_batch_tokens: int) -> list[MicroBatch]:
    """Rows of like length together, so that little is padded."""
    batches: list[list[Row]] = []
    for row in sorted(rows, key=lambda row: -_row_length(row)):
        if batches and (len(batches[-1]) + 1) * _row_length(batches[-1][0]) <= micro_batch_tokens:
            batches[-1].append(row)
        else:
            batches.append([row])
    return [tuple(batch) for batch in batches]


def _row_length(row: Row) -> int:
    return sum(tree.length for tree in row)
