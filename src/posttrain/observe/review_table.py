"""`posttrain review` for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from posttrain.gate.review import ReviewStats
from posttrain.observe.audit_table import estimate
from posttrain.observe.review import OpenItem


def render_list(found: Sequence[OpenItem], run: str, console: Console) -> None:
    for one in found:
        item = one.item
        again = ", second label" if item.second else ""
        console.print(
            Text(f"── {item.trajectory_id}  {item.domain}, step {item.step}, {item.why}{again}", style="bold")
        )
        console.print(Text(f"   asked   {one.prompt!r}"), soft_wrap=True)
        console.print(Text(f"   replied {one.reply!r}"), soft_wrap=True)
        reward = "–" if one.reward is None else f"{one.reward:.2f}"
        flags = f", flagged {', '.join(one.flags)}" if one.flags else ""
        console.print(
            Text(f"   verdict {one.status} ({one.reason or 'no reason'}), reward {reward}{flags}", style="dim")
        )
    if found:
        hint = f"posttrain review label {run} {found[0].item.trajectory_id} correct --reviewer NAME"
        console.print(Text(f"Say what is true, whatever the verdict: {hint}", style="dim"), soft_wrap=True)
    else:
        console.print("Nothing waits for this reviewer.")


def render_stats(found: ReviewStats, console: Console) -> None:
    table = Table(
        box=box.SIMPLE,
        title=Text("Verifiers against people, in % with 95 % intervals", style="table.title"),
        title_justify="left",
    )
    for column in ("domain", "version"):
        table.add_column(column, no_wrap=True)
    for column in ("attempts", "labels", "unclear", "disputed", "precision", "recall"):
        table.add_column(column, justify="right", no_wrap=True)
    for one in found.verifiers:
        counts = (one.num_attempts, one.num_labels, one.unclear, one.disputed)
        figures = (estimate(one.precision), estimate(one.recall))
        table.add_row(Text(one.domain), Text(one.version), *map(str, counts), *figures)
    console.print(table)
    kappa = "–" if found.kappa is None else f"{found.kappa:.2f}"
    console.print(
        f"{found.num_labelled} of {found.num_items} drawn attempts labelled, {found.num_twice} by two people; "
        f"Cohen's kappa {kappa}."
    )
