"""The table behind a stored attempt: which column holds what, there and back.

Columns are flat, so that any Parquet reader can filter on them; what is a list or mapping of its own is JSON text.
This is the one place that knows column names. It opens no file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from posttrain.core.types import (
    Boundary,
    Cost,
    Detection,
    Failure,
    Json,
    Message,
    Reward,
    Role,
    Split,
    StopReason,
    Turn,
    Verdict,
    VerdictStatus,
)
from posttrain.store.trajectory_row import TrajectoryRow

ARROW_TYPES: Mapping[str, str] = {
    "stage_index": "int64",
    "step": "int64",
    "trajectory_id": "string",
    "group_id": "string",
    "sibling": "int64",
    "task_id": "string",
    "domain": "string",
    "level": "int64",
    "split": "string",
    "seed": "int64",
    "index": "int64",
    "prompt": "string",
    "reply": "string",
    "tokens": "list<int32>",
    "sampled": "list<bool>",
    "behavior_logprobs": "list<float>",
    "versions": "list<int32>",
    "turns": "string",
    "stop": "string",
    "status": "string",
    "score": "double",
    "reason": "string",
    "answer": "string",
    "verdict_parts": "string",
    "flags": "string",
    "verifier_version": "string",
    "isolation_tier": "string",
    "reward_total": "double",
    "reward_parts": "string",
    "reward_weights": "string",
    "reward_gates": "string",
    "reward_withheld": "string",
    "reward_null_levels": "string",
    "failure_boundary": "string",
    "failure_reason": "string",
    "num_sampled_tokens": "int64",
    "wall_s": "double",
    "sandbox_s": "double",
    "detections": "string",
    "held_out": "string",
    "quarantine": "string",
}
"""Name → type, in the order of the file."""

SINCE_SCHEMA_2: Mapping[str, Json] = {"detections": "[]", "held_out": None, "quarantine": ""}
"""Columns that older files lack → what stands for them."""

_ARRAY_TYPES: Mapping[str, type[np.generic]] = {
    "tokens": np.int32,
    "sampled": np.bool_,
    "behavior_logprobs": np.float32,
    "versions": np.int32,
}
_ENCODED = ("split", "prompt", "turns", "stop", "detections", "held_out")
_PLAIN = [name for name in ARROW_TYPES if name in TrajectoryRow.__dataclass_fields__ and name not in _ENCODED]


def to_columns(row: TrajectoryRow) -> dict[str, Json]:
    """One value for each column."""
    verdict, reward, failure = row.verdict, row.reward, row.failure
    return {
        **{name: getattr(row, name) for name in _PLAIN},
        "split": str(row.split),
        "prompt": json.dumps([{"role": m.role, "content": m.content} for m in row.prompt], ensure_ascii=False),
        "turns": json.dumps([[turn.start, turn.end, turn.reward, turn.done] for turn in row.turns]),
        "stop": str(row.stop),
        "status": None if verdict is None else str(verdict.status),
        "score": None if verdict is None else verdict.score,
        "reason": None if verdict is None else verdict.reason,
        "answer": None if verdict is None else verdict.answer,
        "verdict_parts": None if verdict is None else json.dumps(dict(verdict.parts)),
        "flags": None if verdict is None else json.dumps(verdict.flags),
        "verifier_version": None if verdict is None else verdict.verifier_version,
        "isolation_tier": None if verdict is None else verdict.isolation_tier,
        "reward_total": None if reward is None else reward.total,
        "reward_parts": None if reward is None else json.dumps(dict(reward.parts)),
        "reward_weights": None if reward is None else json.dumps(dict(reward.weights)),
        "reward_gates": None if reward is None else json.dumps(dict(reward.gates)),
        "reward_withheld": None if reward is None else json.dumps(reward.withheld),
        "reward_null_levels": None if reward is None else json.dumps(dict(reward.null_levels)),
        "failure_boundary": None if failure is None else str(failure.boundary),
        "failure_reason": None if failure is None else failure.reason,
        "num_sampled_tokens": row.cost.num_sampled_tokens,
        "wall_s": row.cost.wall_s,
        "sandbox_s": row.cost.sandbox_s,
        "detections": json.dumps([[d.name, d.row, d.seen, d.grave] for d in row.detections]),
        "held_out": None if row.held_out is None else json.dumps(_second_verdict(row.held_out)),
        "quarantine": row.quarantine,
    }


def from_columns(columns: Mapping[str, Json]) -> TrajectoryRow:
    """The row that `to_columns` came from. Raises ValueError, KeyError or TypeError where the columns do not fit."""
    columns = {**SINCE_SCHEMA_2, **columns}
    arrays: dict[str, Any] = {name: np.asarray(columns[name], kind) for name, kind in _ARRAY_TYPES.items()}
    return TrajectoryRow(
        **{**{name: columns[name] for name in _PLAIN}, **arrays},
        split=Split(columns["split"]),
        prompt=tuple(Message(Role(m["role"]), m["content"]) for m in json.loads(columns["prompt"])),
        turns=tuple(Turn(*turn) for turn in json.loads(columns["turns"])),
        stop=StopReason(columns["stop"]),
        verdict=_verdict(columns),
        reward=_reward(columns),
        failure=_failure(columns),
        cost=Cost(columns["num_sampled_tokens"], columns["wall_s"], columns["sandbox_s"]),
        detections=tuple(Detection(*detection) for detection in json.loads(columns["detections"])),
        held_out=_held_out(columns["held_out"]),
    )


def _second_verdict(verdict: Verdict) -> list[Json]:
    return [str(verdict.status), verdict.score, verdict.reason, verdict.answer, verdict.verifier_version]


def _held_out(text: str | None) -> Verdict | None:
    if text is None:
        return None
    status, score, reason, answer, version = json.loads(text)
    return Verdict(VerdictStatus(status), score, reason, answer=answer, verifier_version=version)


def _verdict(columns: Mapping[str, Json]) -> Verdict | None:
    if columns["status"] is None:
        return None
    return Verdict(
        VerdictStatus(columns["status"]),
        columns["score"],
        columns["reason"],
        answer=columns["answer"],
        parts=json.loads(columns["verdict_parts"]),
        flags=tuple(json.loads(columns["flags"])),
        verifier_version=columns["verifier_version"],
        isolation_tier=columns["isolation_tier"],
    )


def _reward(columns: Mapping[str, Json]) -> Reward | None:
    if columns["reward_total"] is None:
        return None
    return Reward(
        columns["reward_total"],
        parts=json.loads(columns["reward_parts"]),
        weights=json.loads(columns["reward_weights"]),
        gates=json.loads(columns["reward_gates"]),
        # Files of schema 1 may lack these columns: then nothing was withheld and nothing corrected.
        withheld=tuple(json.loads(columns.get("reward_withheld") or "[]")),
        null_levels=json.loads(columns.get("reward_null_levels") or "{}"),
    )


def _failure(columns: Mapping[str, Json]) -> Failure | None:
    if columns["failure_boundary"] is None:
        return None
    return Failure(Boundary(columns["failure_boundary"]), columns["failure_reason"])
