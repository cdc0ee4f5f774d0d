"""`posttrain reverify` for a terminal: verdicts old → new by step and domain, the steps that learned, what to do."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text


def render(found: dict[str, Any], console: Console) -> None:
    """Print what `reverify_command` found."""
    for domain in found["domains"]:
        versions = ", ".join(domain["old_versions"]) or "no version"
        line = f"{domain['domain']}: {domain['attempts']} attempts, verifier {versions} → {domain['new_version']}"
        for name, what in (("no_verdict", "without a verdict now"), ("several_turns", "of several turns left out")):
            line += f", {domain[name]} {what}" if domain[name] else ""
        console.print(Text(line, style="bold"), soft_wrap=True)
    if found["unchanged"]:
        console.print(Text(f"Unchanged: {', '.join(found['unchanged'])}", style="dim"))
    if found["by_step"]:
        table = Table(box=box.SIMPLE)
        for column in ("stage", "step", "domain", "verdict", "attempts", "learned from"):
            table.add_column(column, justify="right" if column in ("step", "attempts") else "left", no_wrap=True)
        for row in found["by_step"]:
            verdict = f"{row['old']} → {row['new']}"
            learned = Text("yes", style="bold red") if row["learned"] else Text("no")
            table.add_row(row["stage"], str(row["step"]), Text(row["domain"]), verdict, str(row["attempts"]), learned)
        console.print(table)
    if found["affected_steps"]:
        stages: dict[str, list[int]] = {}
        for step in found["affected_steps"]:
            stages.setdefault(step["stage"], []).append(step["step"])
        for stage, steps in stages.items():
            console.print(Text(f"Affected steps of {stage}: {', '.join(map(str, steps))}"), soft_wrap=True)
    console.print(Text(found["advice"]), soft_wrap=True)
