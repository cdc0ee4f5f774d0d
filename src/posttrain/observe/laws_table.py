"""`posttrain check` for a terminal: one line for each law, and beneath a broken one what broke it. It tries nothing."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from posttrain.core.law_result import LawResult


def render(name: str, laws: Sequence[LawResult], console: Console) -> None:
    """Print what each law says of the component called `name`."""
    table = Table(box=box.SIMPLE, title=f"Laws and {name}", title_justify="left")
    table.add_column("law", no_wrap=True)
    table.add_column("holds", no_wrap=True)
    table.add_column("what")
    for law in laws:
        what = Text(law.what)
        if law.smallest_input:
            what.append(f"\nsmallest input: {law.smallest_input}", style="dim")
        table.add_row(law.law, Text("yes") if law else Text("NO", style="bold red"), what)
    console.print(table)
    broken = [law.law for law in laws if not law]
    verdict = f"{len(broken)} of {len(laws)} laws are broken: {', '.join(broken)}" if broken else "Every law holds."
    console.print(Text(verdict, style="bold"))
