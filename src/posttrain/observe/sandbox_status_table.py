"""`posttrain sandbox status` for a terminal: the isolation, what is missing, then what was done. It asks nobody."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from posttrain.core.sandbox_status import Percentiles, SandboxFigures, SandboxStatus


def render(name: str, tier: str, trial_s: float, status: SandboxStatus | None, console: Console) -> None:
    table = Table(box=box.SIMPLE, title=f"Sandbox {name}", title_justify="left", show_header=False)
    table.add_row("tier", tier)
    for label, value in _isolation(status) if status else ():
        table.add_row(label, value)
    table.add_row("a trial execution", _ms(trial_s))
    for label, value in _figures(status.figures) if status else ():
        table.add_row(label, value)
    console.print(table)
    for sentence in status.missing if status else ():
        console.print(Text(f"missing: {sentence}"))


def _isolation(status: SandboxStatus) -> Iterator[tuple[str, str]]:
    if status.kernel is not None:
        yield "kernel", status.kernel
    if status.landlock_abi is not None:
        yield "Landlock ABI", str(status.landlock_abi or "none")
    if status.cgroup is not None:
        yield "control group", "memory and processes of a whole program are limited" if status.cgroup else "none"
    yield "executions at once", str(status.concurrency)
    if status.draining:
        yield "state", "about to end: it takes no more executions"


def _figures(figures: SandboxFigures) -> Iterator[tuple[str, str]]:
    slots = f"{figures.slots_live} live, {figures.slots_created} created, {figures.slots_destroyed} destroyed"
    yield "start of a slot", _spread(figures.start_s)
    yield "slots", slots
    yield "open sessions", str(figures.sessions)
    yield "executions now", f"{figures.running} running, {figures.queued} queued"
    yield "waiting", _spread(figures.wait_s)
    yield "running", _spread(figures.run_s)
    yield "ended", ", ".join(f"{count} {name}" for name, count in sorted(figures.ended.items())) or "none"
    yield "retries", str(figures.retries)
    yield "leaks", f"{figures.leaked_slots} slots, {figures.leaked_cgroups} control groups"


def _spread(seconds: Percentiles) -> str:
    return f"p50 {_ms(seconds.p50)}, p90 {_ms(seconds.p90)}, p99 {_ms(seconds.p99)}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"
