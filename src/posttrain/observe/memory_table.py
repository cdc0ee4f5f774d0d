"""`posttrain bench memory` for a terminal: one line for each length and choice of techniques. It measures nothing."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text


def render(found: dict[str, Any], console: Console) -> None:
    """Print what `bench_memory` found."""
    title = f"One step of full fine-tuning, {found['model']} in {found['dtype']}, threads: {found['num_threads']}"
    table = Table(box=box.SIMPLE, title=title)
    for name in ("tokens", "chunked", "recomputed", "peak MiB", "tokens/s"):
        table.add_column(name, justify="right")
    for row in found["rows"]:
        measured = ["–", "–"] if row["failure"] else [f"{row['peak_mib']:,}", f"{row['tokens_per_s']:,.1f}"]
        techniques = ["yes" if row[name] else "no" for name in ("chunked", "recompute")]
        table.add_row(f"{row['context']:,}", *techniques, *measured)
    console.print(table)
    if found["note"]:
        console.print(Text(found["note"], style="dim"))
