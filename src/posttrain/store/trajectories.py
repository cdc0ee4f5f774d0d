"""Trajectories on disk: one Parquet file for each step, replaced whole when the step is done again.

A row is one attempt, with ids, mask, log-probs and versions of one length (law L14), its task's coordinates, what was
said of it and what it cost. Which columns there are is `trajectory_columns`' affair.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path

from posttrain.core.errors import StoreError, UserError
from posttrain.core.types import SCHEMA_VERSION, Trajectory
from posttrain.store.files import check_schema, storing, write_bytes
from posttrain.store.position import Position
from posttrain.store.trajectory_columns import ARROW_TYPES, from_columns, to_columns
from posttrain.store.trajectory_row import TrajectoryRow

_SCHEMA_KEY = b"posttrain.schema_version"


class TrajectoryStore:
    """A run's `trajectories/` folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, position: Position, trajectories: Sequence[Trajectory]) -> Path:
        """Write or replace one step's file; returns its path."""
        path = self.path(position)
        write_trajectories(path, position, trajectories)
        return path

    def positions(self) -> list[Position]:
        """The steps that are there, in order."""
        found = (Position.parse(path.stem) for path in self._folder.glob("*.parquet"))
        return sorted(position for position in found if position is not None)

    def read(self, position: Position) -> list[TrajectoryRow]:
        """One step's rows, as they were written. Raises `StoreError` where the file is missing or damaged."""
        return read_trajectories(self.path(position))

    def rows(self) -> Iterator[TrajectoryRow]:
        """Every row of the run, step by step; one file is in memory at a time."""
        for position in self.positions():
            yield from self.read(position)

    def unscored(self) -> Iterator[TrajectoryRow]:
        """The rows that a failure of ours left without a verdict; the others are not decoded."""
        for position in self.positions():
            yield from read_trajectories(self.path(position), unscored_only=True)

    def truncate_after(self, position: Position) -> int:
        """Remove the steps after `position`, which a resumed run does again; returns how many files went."""
        later = [self.path(found) for found in self.positions() if found > position]
        for path in later:
            with storing(path):
                path.unlink()
        return len(later)

    def path(self, position: Position) -> Path:
        """Of the step's file, whether it is there or not."""
        return self._folder / f"{position}.parquet"


def write_trajectories(path: Path, position: Position, trajectories: Sequence[Trajectory]) -> None:
    """One Parquet file, atomically; its folder is made where it is missing."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {
        "list<int32>": pa.list_(pa.int32()),
        "list<bool>": pa.list_(pa.bool_()),
        "list<float>": pa.list_(pa.float32()),
    }
    fields = [(name, types.get(kind) or pa.type_for_alias(kind)) for name, kind in ARROW_TYPES.items()]
    schema = pa.schema(fields, metadata={_SCHEMA_KEY: str(SCHEMA_VERSION).encode()})
    rows = [to_columns(TrajectoryRow.of(trajectory, position)) for trajectory in trajectories]
    columns = [pa.array([row[field.name] for row in rows], field.type) for field in schema]
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(columns, schema=schema), buffer, compression="zstd")
    with storing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, buffer.getvalue())


def read_trajectories(path: Path, *, unscored_only: bool = False) -> list[TrajectoryRow]:
    """The rows of one file, in the order in which they were written.

    Raises `StoreError` where the file is missing or damaged, `UserError` where a newer posttrain wrote it.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    try:
        check_trajectories(path)
        table = pq.read_table(path)
        if unscored_only:
            scored = pc.is_in(table["status"], value_set=pa.array(["correct", "incorrect"]))
            table = table.filter(pc.or_(pc.invert(scored), pc.is_valid(table["failure_boundary"])))
        return [from_columns(columns) for columns in table.to_pylist()]
    except UserError:
        raise
    except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise StoreError(f"{path} is no whole file of trajectories: {error}") from error


def check_trajectories(path: Path) -> list[str]:
    """The columns of a file that this posttrain can read. Raises as `read_trajectories`, and arrow's own exceptions."""
    import pyarrow.parquet as pq

    if not path.is_file():
        raise StoreError(f"there is no file {path}")
    schema = pq.read_schema(path)
    check_schema(int((schema.metadata or {}).get(_SCHEMA_KEY, b"0")), path)
    return list(schema.names)
