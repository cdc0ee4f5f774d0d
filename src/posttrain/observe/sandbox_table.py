"""`posttrain bench sandbox` for a terminal: rates, ratios and times of one measurement. It measures nothing."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

_RATES = {
    "bare": "bare Python, python3 -c pass",
    "bare_as_installed": "bare Python with what is installed beside it",
    "rlimits": "trivial program, subprocess with rlimits",
    "trivial": "trivial program, sandbox",
    "asserts": "program with five inputs, sandbox",
    "numpy_cold": "numpy program, cold import",
    "numpy": "numpy program, sandbox with it preloaded",
    "bare_2_cores": "bare Python, two cores",
    "trivial_2_cores": "trivial program, sandbox, two cores",
}
_RATIOS = {
    "trivial_vs_bare": "trivial program over bare Python",
    "trivial_vs_bare_as_installed": "trivial program over bare Python with what is installed beside it",
    "asserts_vs_bare": "five inputs over bare Python",
    "numpy_vs_cold": "numpy preloaded over cold import",
    "trivial_vs_rlimits": "trivial program over rlimits alone",
    "scaling_2_cores": "two cores over one, over the same of bare Python",
}
_TIMES = {
    "added_latency_ms": "added to a program's time at half load",
    "reset_ms": "a session back to a snapshot",
    "snapshot_ms": "a snapshot of a session",
    "box_ms": "an empty box after an execution",
    "kill_overshoot_ms": "end of a loop after its limit",
    "kill_overshoot_bombs_ms": "end of a bomb after its limit",
}


def render(found: dict[str, Any], console: Console) -> None:
    """Print what `bench_sandbox` found."""
    isolation = f"{found['tier']}, Linux {found['kernel']}, Landlock {found['landlock_abi'] or 'absent'}"
    title = f"Sandbox: {isolation}, cgroup {'yes' if found['cgroup'] else 'no'}; medians of {found['rounds']} rounds"
    rates = Table(box=box.SIMPLE, title=title)
    _columns(rates, "executions on one core", "a second")
    for name, label in _RATES.items():
        if name in found["rates_per_s"]:
            rates.add_row(label, f"{found['rates_per_s'][name]:,.1f}")
    ratios = Table(box=box.SIMPLE)
    _columns(ratios, "ratio of rates", "")
    for name, label in _RATIOS.items():
        ratios.add_row(label, "–" if found[name] is None else f"{found[name]:.2f}")
    times = Table(box=box.SIMPLE)
    _columns(times, "milliseconds", "median", "99 %")
    for name, label in _TIMES.items():
        times.add_row(label, *(f"{found[name][key]:.2f}" if key in found[name] else "–" for key in ("p50", "p99")))
    for table in (rates, ratios, times):
        console.print(table)


def _columns(table: Table, first: str, *others: str) -> None:
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
