"""`posttrain check tests` for a terminal: the tasks that were refused and why, then every task. It measures nothing."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from posttrain.verifiers.quality.admission import Admission
from posttrain.verifiers.quality.coverage import Coverage
from posttrain.verifiers.quality.difficulty import DifficultySpread
from posttrain.verifiers.quality.mutation import Mutation
from posttrain.verifiers.quality.repetition import Repetition

_COLUMNS = ("tests", "lines", "arms", "mutants", "flaky", "solved")
_NOTHING = "-"
"""Not measured, or of replies: none were given."""


def render(
    name: str, tier: str, tasks: Sequence[Admission], difficulty: DifficultySpread | None, console: Console
) -> None:
    """Print what was measured of the tests of `name`, which is a file or a domain."""
    for task in tasks:
        if not task:
            console.print(Text(task.report.text()), soft_wrap=True)
            for reason in task.reasons:
                console.print(Text(f"  refused: {reason}", style="bold red"), soft_wrap=True)
    console.print(_table(f"Hidden tests of {name}, sandbox {tier}", tasks))
    admitted = sum(map(bool, tasks))
    console.print(Text(f"{admitted} of {len(tasks)} tasks admitted, {len(tasks) - admitted} refused.", style="bold"))
    if difficulty is not None:
        console.print(
            f"Of {difficulty.num_tasks} tasks with replies, {difficulty.num_always_solved} are always solved and "
            f"{difficulty.num_never_solved} never."
        )


def _table(title: str, tasks: Sequence[Admission]) -> Table:
    table = Table(box=box.SIMPLE, title=Text(title, style="table.title"), title_justify="left")
    table.add_column("task", overflow="ellipsis")  # the widest, so the one that a narrow terminal cuts
    for column in _COLUMNS:
        table.add_column(column, justify="right")
    table.add_column("")
    for task in tasks:
        verdict = Text("admitted") if task else Text("REFUSED", style="bold red")
        table.add_row(Text(task.report.task), *_figures(task), verdict)
    return table


def _figures(task: Admission) -> tuple[str, ...]:
    """In the order of `_COLUMNS`."""
    report = task.report
    coverage, mutation, repetition = report.coverage, report.mutation, report.repetition
    solved = report.difficulty.solved_share if report.difficulty else None
    return (
        str(len(report.tests)),
        _share(coverage.line_share if isinstance(coverage, Coverage) else None),
        _share(coverage.branch_share if isinstance(coverage, Coverage) else None),
        _share(mutation.score if isinstance(mutation, Mutation) else None),
        str(len(repetition.flaky)) if isinstance(repetition, Repetition) else _NOTHING,
        _share(solved),
    )


def _share(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:.2f}"
