"""The review queue of a run and what people said of its attempts: two files that only grow.

    review/queue.jsonl    the attempts that were drawn, and from which stratum
    review/labels.jsonl   one line for each judgement; a reviewer's later one replaces the earlier

Labels of several people at once all stay. It draws nothing and counts nothing.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from posttrain.core.errors import StoreError
from posttrain.store.append_lines import append_lines, appending, read_lines

Line = TypeVar("Line")


class Label(enum.StrEnum):
    CORRECT = "correct"
    INCORRECT = "incorrect"
    UNCLEAR = "unclear"


class Why(enum.StrEnum):
    """Why an attempt is in the queue."""

    RANDOM = "random"
    FLAGGED = "flagged"
    """A detector fired on it."""


@dataclass(frozen=True)
class ReviewItem:
    """An attempt that somebody should look at."""

    trajectory_id: str
    stage_index: int
    step: int
    domain: str
    stratum: str
    why: Why
    second: bool
    """Whether a second person is to label it too, without knowing what the first one said."""


@dataclass(frozen=True)
class ReviewLabel:
    trajectory_id: str
    reviewer: str
    label: Label
    note: str = ""
    time: float = 0.0
    """Seconds since the epoch."""


class ReviewStore:
    """A run's `review/` folder."""

    def __init__(self, folder: Path) -> None:
        self._queue = folder / "queue.jsonl"
        self.labels_path = folder / "labels.jsonl"

    def items(self) -> list[ReviewItem]:
        """In the order in which they were drawn. Raises `StoreError` for a damaged line."""
        return _read(self._queue, TypeAdapter(ReviewItem))

    def labels(self) -> list[ReviewLabel]:
        """In the order in which they were given, replaced ones too."""
        return _read(self.labels_path, TypeAdapter(ReviewLabel))

    def extend(self, draw: Callable[[Sequence[ReviewItem]], Sequence[ReviewItem]]) -> list[ReviewItem]:
        """Add what `draw` gives for the items that are there; nobody else can add to the queue meanwhile."""
        with appending(self._queue):
            items = self.items()
            fresh = draw(items)
            if fresh:
                append_lines(self._queue, [asdict(item) for item in fresh])
        return [*items, *fresh]

    def add(self, label: ReviewLabel) -> ReviewLabel:
        """Returns it as it was stored, with its time."""
        stored = ReviewLabel(label.trajectory_id, label.reviewer, label.label, label.note, time.time())
        with appending(self.labels_path):
            append_lines(self.labels_path, [asdict(stored)])
        return stored


def _read(path: Path, adapter: TypeAdapter[Line]) -> list[Line]:
    try:
        return [adapter.validate_python(row) for row in read_lines(path)]
    except ValidationError as error:
        raise StoreError(f"{path} holds a line that is none of the review's: {error}") from None
