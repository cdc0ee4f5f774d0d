"""`posttrain replay` for a terminal: where it went on from, and what came back beside what was recorded."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text


def render(found: dict[str, Any], console: Console) -> None:
    """Print what `replay_command` found; numbers with all their digits, since bits are what is compared."""
    begin = f"the checkpoint after step {found['from_step']}" if found["from_step"] else "the stage's begin"
    console.print(Text(f"Step {found['step']} of stage {found['stage']}, again from {begin}", style="bold"))
    if found["error"]:
        console.print(Text(f"It failed: {found['error']}", style="red"))
    if found["compared"]:
        table = Table(box=box.SIMPLE)
        for name in ("", "recorded", "again", "same"):
            table.add_column(name, justify="right" if name in ("recorded", "again") else "left", no_wrap=True)
        for row in found["compared"]:
            table.add_row(row["name"], _number(row["recorded"]), _number(row["again"]), "yes" if row["same"] else "no")
        console.print(table)
    console.print(Text(_verdict(found)))


def _number(value: float | None) -> str:
    return "–" if value is None else repr(value)


def _verdict(found: dict[str, Any]) -> str:
    match found["same"]:
        case True:
            return "What was recorded came back exactly."
        case False:
            return "It came back with other numbers."
        case _:
            return "One of the two times has no numbers, so there is nothing to compare."
