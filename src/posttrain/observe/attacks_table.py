"""`posttrain check sandbox` for a terminal: what did not hold first, then each family. It tries nothing."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from posttrain.sandbox.attacks.check import AttackResult
from posttrain.sandbox.conformance import Conformity


def render(
    name: str, tier: str, attacks: Sequence[AttackResult], conformance: Sequence[Conformity], console: Console
) -> None:
    """Print how the sandbox called `name` held."""
    failed = [attack for attack in attacks if not attack]
    unmet = [conformity for conformity in conformance if not conformity]
    if failed or unmet:
        console.print(_failures(failed, unmet))
    console.print(_families(f"Attacks on {name}, tier {tier}", attacks))
    forged = sum(attack.forged for attack in attacks)
    console.print(
        Text(
            f"{len(attacks) - len(failed)} of {len(attacks)} attacks contained, {forged} forged verdicts; "
            f"{len(conformance) - len(unmet)} of {len(conformance)} expectations of honest programs met.",
            style="bold",
        )
    )


def _failures(failed: Sequence[AttackResult], unmet: Sequence[Conformity]) -> Table:
    table = Table(box=box.SIMPLE, title="What did not hold", title_justify="left")
    for column in ("what", "kind", "class", "why"):
        table.add_column(column)
    for attack in failed:
        table.add_row(Text(attack.name, style="bold red"), attack.kind, attack.result_class or "-", Text(attack.reason))
    for conformity in unmet:
        table.add_row(Text(conformity.name, style="bold red"), "conformance", "-", Text(conformity.reason))
    return table


def _families(title: str, attacks: Sequence[AttackResult]) -> Table:
    table = Table(box=box.SIMPLE, title=title, title_justify="left")
    table.add_column("kind")
    table.add_column("attacks", justify="right")
    table.add_column("contained", justify="right")
    for kind in dict.fromkeys(attack.kind for attack in attacks):
        of_kind = [attack for attack in attacks if attack.kind == kind]
        table.add_row(kind, str(len(of_kind)), str(sum(map(bool, of_kind))))
    return table
