"""`posttrain domains audit` for a terminal: what got through first, then every check. It attacks nothing."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from posttrain.domains.audit import DomainAudit


def render(found: DomainAudit, console: Console) -> None:
    for finding in found.findings:
        if not finding.holds:
            line = (
                f"! {finding.check}, level {finding.level}: {finding.value:.2f}, where {finding.limit:.2f} is the limit"
            )
            console.print(Text(f"{line} {finding.note}".rstrip(), style="bold red"), soft_wrap=True)
            for example in finding.examples:
                console.print(Text(f"    {example}"), soft_wrap=True)
    title = Text(f"Attacks on {found.domain}, verifier {found.version}", style="table.title")
    table = Table(box=box.SIMPLE, title=title, title_justify="left")
    for column in ("check", "level", "value", "limit", "replies", ""):
        table.add_column(column, justify="left" if column in ("check", "") else "right", no_wrap=True)
    for finding in found.findings:
        verdict = Text("not tried" if not finding.n else "holds") if finding.holds else Text("FAILS", style="bold red")
        figures = (str(finding.level), f"{finding.value:.2f}", f"{finding.limit:.2f}", str(finding.n))
        table.add_row(finding.check, *figures, verdict)
    console.print(table)
    held = sum(finding.holds for finding in found.findings)
    console.print(Text(f"{held} of {len(found.findings)} checks hold.", style="bold"))
