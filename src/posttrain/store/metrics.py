"""`metrics.jsonl`: one line for each step, appended whole and never changed, except that resume cuts the tail.

A line is `{"schema_version", "stage_index", "stage", "step", "time", "values"}`. A value that is not finite is null
on disk and NaN when read. Names of values are the run's affair: nothing here interprets them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from posttrain.core.errors import StoreError, UserError
from posttrain.core.types import SCHEMA_VERSION, Json
from posttrain.store.files import append_bytes, check_schema, plain, write_bytes
from posttrain.store.position import Position


@dataclass(frozen=True)
class MetricsRecord:
    """One step's numbers."""

    stage_index: int
    stage: str
    step: int
    time: float
    """Seconds since the epoch, when the step was done."""
    values: Mapping[str, float]

    @property
    def position(self) -> Position:
        return Position(self.stage_index, self.step)


@dataclass(frozen=True)
class MetricsRead:
    """What a metrics file holds."""

    records: tuple[MetricsRecord, ...]
    torn: str = ""
    """A sentence where the last line was cut off while it was written; the records before it are whole."""


class MetricsLog:
    """The writing side; one at a time, held by the run's lock. A torn last line is cut off first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        if read_metrics(path).torn:
            self._rewrite(list(read_metrics(path).records))

    def append(self, position: Position, stage: str, values: Mapping[str, float]) -> MetricsRecord:
        """Write one line and fsync it. Raises `StorageFullError`, after which the file ends with the line before."""
        record = MetricsRecord(position.stage_index, stage, position.step, time.time(), dict(values))
        append_bytes(self._path, _encode(record))
        return record

    def truncate_after(self, position: Position) -> int:
        """Drop the steps after `position`, which a resumed run does again; returns how many lines went."""
        records = read_metrics(self._path).records
        kept = [record for record in records if record.position <= position]
        if len(kept) < len(records):
            self._rewrite(kept)
        return len(records) - len(kept)

    def _rewrite(self, records: list[MetricsRecord]) -> None:
        write_bytes(self._path, b"".join(_encode(record) for record in records))


def read_metrics(path: Path) -> MetricsRead:
    """Every whole line. Raises `StoreError` for a damaged line that is not the last; a missing file is empty."""
    if not path.exists():
        return MetricsRead(())
    *lines, tail = path.read_bytes().split(b"\n")
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            records.append(_decode(json.loads(line), path))
        except UserError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreError(f"line {number} of {path} is no record of a step: {error}") from None
    torn = f"the last line of {path} was cut off while it was written and is left out" if tail else ""
    return MetricsRead(tuple(records), torn)


def _encode(record: MetricsRecord) -> bytes:
    content = {
        "schema_version": SCHEMA_VERSION,
        "stage_index": record.stage_index,
        "stage": record.stage,
        "step": record.step,
        "time": record.time,
        "values": {name: float(value) for name, value in record.values.items()},
    }
    return json.dumps(plain(content), ensure_ascii=False).encode() + b"\n"


def _decode(content: dict[str, Json], path: Path) -> MetricsRecord:
    check_schema(content.get("schema_version"), path)
    values = {name: float("nan") if value is None else float(value) for name, value in content["values"].items()}
    return MetricsRecord(content["stage_index"], content["stage"], content["step"], content["time"], values)
