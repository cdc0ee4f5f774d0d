"""What is counted of stored attempts, without their tokens and texts: a whole run of them fits into memory.

It reads the columns that it needs from the run's Parquet files and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from posttrain.core.errors import StoreError, UserError
from posttrain.core.types import Detection, Json, VerdictStatus
from posttrain.store.position import Position
from posttrain.store.trajectories import TrajectoryStore, check_trajectories
from posttrain.store.trajectory_columns import SINCE_SCHEMA_2

_COLUMNS = (
    "trajectory_id", "group_id", "domain", "status", "score", "verifier_version", "reward_total", "reward_parts",
    "failure_boundary", "detections", "held_out", "quarantine",
)  # fmt: skip


@dataclass(frozen=True)
class AttemptFacts:
    """One stored attempt, counted."""

    position: Position
    trajectory_id: str
    group_id: str
    domain: str
    status: VerdictStatus
    """NO_VERDICT also where a failure of ours left nothing to say."""
    score: float
    verifier_version: str
    reward: float | None
    reward_parts: Mapping[str, float] = field(default_factory=dict)
    detections: tuple[Detection, ...] = ()
    held_out: VerdictStatus | None = None
    quarantine: str = ""

    @property
    def suspect(self) -> bool:
        """As `Trajectory.suspect`."""
        paid = self.status is not VerdictStatus.NO_VERDICT and self.score > 0.0
        return paid and any(detection.grave for detection in self.detections)


def attempt_facts(store: TrajectoryStore) -> Iterator[AttemptFacts]:
    """Of every attempt, step by step. Raises `StoreError` for a damaged file, `UserError` for a newer posttrain's."""
    for position in store.positions():
        for row in _rows(store.path(position)):
            yield _facts(position, {**SINCE_SCHEMA_2, **row})


def _rows(path: Path) -> list[dict[str, Json]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        stored = check_trajectories(path)
        rows: list[dict[str, Json]] = pq.read_table(path, columns=[c for c in _COLUMNS if c in stored]).to_pylist()
    except UserError:
        raise
    except (pa.ArrowException, ValueError) as error:
        raise StoreError(f"{path} is no whole file of trajectories: {error}") from error
    return rows


def _facts(position: Position, row: Mapping[str, Json]) -> AttemptFacts:
    lost = row["status"] is None or row["failure_boundary"] is not None
    return AttemptFacts(
        position=position,
        trajectory_id=row["trajectory_id"],
        group_id=row["group_id"],
        domain=row["domain"],
        status=VerdictStatus.NO_VERDICT if lost else VerdictStatus(row["status"]),
        score=0.0 if row["score"] is None else row["score"],
        verifier_version=row["verifier_version"] or "",
        reward=row["reward_total"],
        reward_parts=json.loads(row["reward_parts"] or "{}"),
        detections=tuple(Detection(*detection) for detection in json.loads(row["detections"])),
        held_out=None if row["held_out"] is None else VerdictStatus(json.loads(row["held_out"])[0]),
        quarantine=row["quarantine"],
    )
