"""`reward_weights.jsonl`: one line for each change of a weight of a part of a reward, with its cause.

Lines are appended whole and never changed, except that resume cuts the tail; a torn last line is cut off first. Which
weights there are at the beginning stands in the configuration.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from posttrain.core.errors import StoreError, UserError
from posttrain.core.types import SCHEMA_VERSION
from posttrain.store.files import append_bytes, check_schema, write_bytes
from posttrain.store.position import Position


@dataclass(frozen=True)
class WeightChange:
    """One weight, from the step after `step` on."""

    stage_index: int
    step: int
    """After which it changed; counted from 1."""
    domain: str
    part: str
    before: float
    after: float
    cause: str
    """A sentence: the schedule, or what a rule has seen."""

    @property
    def position(self) -> Position:
        return Position(self.stage_index, self.step)


class WeightLog:
    """The writing side; one at a time, held by the run's lock."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, changes: Sequence[WeightChange]) -> None:
        """Durable when it returns. Raises `StorageFullError`, after which the file is as it was."""
        if changes:
            append_bytes(self._path, b"".join(map(_encode, changes)))

    def truncate_after(self, position: Position) -> int:
        """Drop the changes after `position`, and what was torn; returns how many went."""
        changes = read_weight_changes(self._path)
        kept = [change for change in changes if change.position <= position]
        if self._path.exists() and b"".join(map(_encode, kept)) != self._path.read_bytes():
            write_bytes(self._path, b"".join(map(_encode, kept)))
        return len(changes) - len(kept)


def read_weight_changes(path: Path) -> list[WeightChange]:
    """Every whole line. Raises `StoreError` for a damaged line that is not the last; a missing file is empty."""
    if not path.exists():
        return []
    *lines, _torn = path.read_bytes().split(b"\n")
    changes = []
    for number, line in enumerate(lines, start=1):
        try:
            content = json.loads(line)
            check_schema(content.pop("schema_version", None), path)
            changes.append(WeightChange(**content))
        except UserError:
            raise
        except (ValueError, TypeError, AttributeError) as error:
            raise StoreError(f"line {number} of {path} is no record of a weight: {error}") from None
    return changes


def _encode(change: WeightChange) -> bytes:
    return json.dumps({"schema_version": SCHEMA_VERSION, **asdict(change)}, ensure_ascii=False).encode() + b"\n"
