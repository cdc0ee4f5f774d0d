"""`posttrain audit` for a terminal: alarms, each domain, each detector, then examples. It counts nothing."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from posttrain.gate.agreement import Estimate
from posttrain.observe.audit import Audit, Example


def render(found: Audit, console: Console) -> None:
    console.print(Text(f"Audit of {found.run}", style="bold"))
    for alarm in found.alarms:
        again = f" (and {alarm.times - 1} times again)" if alarm.times > 1 else ""
        line = f"! {alarm.action.upper()} in {alarm.stage}: {alarm.sentence}{again}"
        console.print(Text(line, style="yellow" if alarm.action == "warn" else "bold red"), soft_wrap=True)
    if not found.alarms:
        console.print(Text("No rule has fired.", style="dim"))
    console.print(_domains(found))
    if found.detectors:
        console.print(_detectors(found))
    else:
        console.print(Text("No detector has fired, or the run was recorded before there were any.", style="dim"))
    for example in found.examples:
        _example(example, console)


def estimate(found: Estimate | None) -> str:
    """`92.0 [81, 97]`, per cent; a dash where nothing is known."""
    if found is None:
        return "–"
    low, high = found.ci95
    return f"{100 * found.value:.1f} [{100 * low:.0f}, {100 * high:.0f}]"


def _domains(found: Audit) -> Table:
    table = _table("Attempts by domain")
    table.add_column("domain", no_wrap=True)
    for column in ("attempts", "correct", "suspect", "quarantined", "no verdict", "confirmed", "precision"):
        table.add_column(column, justify="right")
    table.add_column("")
    precision = {review.domain: review.precision for review in found.reviews}
    for domain in found.domains:
        agrees = f"{domain.held_out_agrees} of {domain.held_out}" if domain.held_out else "–"
        paused = f"paused after step {domain.paused_since}" if domain.paused_since is not None else ""
        table.add_row(
            Text(domain.domain),
            *(str(count) for count in (domain.attempts, domain.correct, domain.suspect, domain.quarantined)),
            str(domain.no_verdict),
            agrees,
            estimate(precision.get(domain.domain)),
            Text(paused, style="bold red"),
        )
    return table


def _detectors(found: Audit) -> Table:
    table = _table("What detectors saw; paid: the verifier gave it a score")
    for column in ("domain", "detector"):
        table.add_column(column, no_wrap=True)
    for column in ("row", "attempts", "paid", "quarantined", "first step"):
        table.add_column(column, justify="right")
    for count in found.detectors:
        table.add_row(
            Text(count.domain),
            Text(count.detector, style="bold" if count.grave else "dim"),
            *(str(n) for n in (count.row, count.attempts, count.paid, count.quarantined, count.first_step)),
        )
    return table


def _example(example: Example, console: Console) -> None:
    reward = "–" if example.reward is None else f"{example.reward:.2f}"
    where = f"{example.domain}, {example.detector}: {example.trajectory_id} of step {example.step}"
    console.print(Text(f"── {where} ({example.status}, reward {reward})", style="bold"), soft_wrap=True)
    for name, text in (("asked", example.prompt), ("replied", example.reply), ("seen", example.seen)):
        console.print(Text(f"   {name:<8}{text!r}"), soft_wrap=True)


def _table(title: str) -> Table:
    return Table(box=box.SIMPLE, title=Text(title, style="table.title"), title_justify="left")
