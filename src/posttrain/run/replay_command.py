"""`posttrain replay`, without the parsing: a step learned from again, as plain data for JSON and for a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from posttrain.core.protocols import Observer
from posttrain.run.replay import COMPARED, Replay, replay
from posttrain.store.files import plain


def replay_command(run: Path, step: int, stage: str | None, observer: Observer) -> dict[str, Any]:
    """`same` is null where either time has no numbers; a number that is not finite is null. Raises as `replay`."""
    return told(replay(run, step, stage, observer))


def told(found: Replay) -> dict[str, Any]:
    rows = [
        {"name": name, "recorded": found.recorded.get(name), "again": found.values.get(name)}
        for name in COMPARED
        if name in found.recorded or name in found.values
    ]
    content: dict[str, Any] = plain(
        {
            "stage": found.stage,
            "step": found.step,
            "from_step": found.from_step,
            "error": found.error or None,
            "same": found.same,
            "compared": [{**row, "same": row["recorded"] == row["again"]} for row in rows],
        }
    )
    return content
