"""The command line's verbs against fooled verifiers: `posttrain audit`, `posttrain review …`, `posttrain reverify` and
`posttrain domains audit`. No logic."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from typing import Annotated

import typer

from posttrain.cli_json import JsonFlag, finish

review_app = typer.Typer(no_args_is_help=True, help="Look at attempts yourself, and see what that says of verifiers.")

_Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, such as runs/quickstart.")]
_Reviewer = Annotated[
    str | None, typer.Option(metavar="NAME", help="Who looks; the name of the system's user if not given.")
]


def audit(run: _Run, as_json: JsonFlag = False) -> None:
    """What was seen of each verifier while the run went on: alarms, detectors, quarantine, pauses, examples."""
    from rich.console import Console

    from posttrain.observe.audit import audit as audited
    from posttrain.observe.audit_table import render
    from posttrain.store.run_directory import RunDirectory

    found = audited(RunDirectory.open(run))
    if not as_json:
        render(found, Console())
    finish(found.plain(), as_json)


@review_app.command("list")
def review_list(
    run: _Run,
    reviewer: _Reviewer = None,
    count: Annotated[int, typer.Option(min=1, help="How many at most.")] = 10,
    as_json: JsonFlag = False,
) -> None:
    """Draw attempts into the run's review queue, and show those that wait for your label."""
    from rich.console import Console

    from posttrain.observe.review import review_list as listed
    from posttrain.observe.review_table import render_list
    from posttrain.store.run_directory import RunDirectory

    found = listed(RunDirectory.open(run), reviewer or getpass.getuser(), count)
    if not as_json:
        render_list(found, str(run), Console())
    finish([one.plain() for one in found], as_json)


@review_app.command("label")
def review_label(
    run: _Run,
    attempt: Annotated[str, typer.Argument(metavar="ATTEMPT", help="As the list names it.")],
    label: Annotated[str, typer.Argument(metavar="LABEL", help="correct, incorrect or unclear.")],
    note: Annotated[str, typer.Option(help="Why, for whoever reads it later.")] = "",
    reviewer: _Reviewer = None,
    as_json: JsonFlag = False,
) -> None:
    """Say of one attempt whether it is right. A later label of yours replaces the earlier one."""
    from dataclasses import asdict

    from posttrain.core.errors import UserError
    from posttrain.core.registry import unknown
    from posttrain.observe.review import review_label as labelled
    from posttrain.store.review import Label
    from posttrain.store.run_directory import RunDirectory

    if label not in list(Label):
        raise UserError(unknown("label", label, list(Label)))
    stored = labelled(RunDirectory.open(run), attempt, Label(label), note, reviewer or getpass.getuser())
    typer.echo(f"{stored.trajectory_id}: {stored.label}, by {stored.reviewer}", err=True)
    finish(asdict(stored), as_json)


@review_app.command("stats")
def review_stats(run: _Run, as_json: JsonFlag = False) -> None:
    """Precision and recall of each verifier by people's labels, with intervals, and how well people agree."""
    from rich.console import Console

    from posttrain.observe.review import review_command_stats, stats_plain
    from posttrain.observe.review_table import render_stats
    from posttrain.store.run_directory import RunDirectory

    found = review_command_stats(RunDirectory.open(run))
    if not as_json:
        render_stats(found, Console())
    finish(stats_plain(found), as_json)


def reverify(
    run: _Run,
    domain: Annotated[
        str | None, typer.Option(help="This domain alone, even where its verifier's version has not changed.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Judge a run's stored attempts again with the verifiers as they are now; say what changed and who learned from it.

    The run's records stay as they are; what is found is kept beside them, and an interrupted call goes on.
    """
    from rich.console import Console

    from posttrain.observe.progress import progress
    from posttrain.observe.reverify_table import render
    from posttrain.run.reverify_command import reverify_command

    with progress(sys.stderr) as observer:
        found = reverify_command(run, domain, observer)
    if not as_json:
        render(found, Console())
    finish(found, as_json)


def domains_audit(
    name: Annotated[str, typer.Argument(help="A registered name or path/to/file.py:Object.")],
    count: Annotated[int, typer.Option(min=4, help="Tasks of each level.")] = 60,
    sandbox: Annotated[
        str, typer.Option(help="For domains that run code: a name, or a table as a configuration has.")
    ] = "local",
    as_json: JsonFlag = False,
) -> None:
    """Attack a domain before anyone trains on it. Exit code 1 where something gets through."""
    from rich.console import Console

    from posttrain.observe.domain_audit_table import render
    from posttrain.run.domain_audit import audit_named_domain

    found = audit_named_domain(name, count, sandbox, lambda sentence: typer.echo(sentence, err=True))
    if not as_json:
        render(found, Console())
    finish(found.plain(), as_json)
    if not found.holds:
        raise typer.Exit(1)
