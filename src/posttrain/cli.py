"""The command line: parse, then hand over. No logic, and nothing heavy is imported before a command needs it.

Exit codes: 0 done, 1 failed, 2 the user's input, 3 a gate said HOLD or ROLLBACK, 130 interrupted. With `--json`,
standard output holds one JSON value and nothing else; everything for people goes to standard error.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from posttrain.cli_audit import audit, domains_audit, reverify, review_app
from posttrain.cli_json import JsonFlag, finish
from posttrain.cli_sandbox import check_sandbox, check_tests, sandbox_app
from posttrain.core.errors import PosttrainError, UserError

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help="Post-training for language models.")
models_app = typer.Typer(no_args_is_help=True, help="Models by name: what there is, and getting it.")
domains_app = typer.Typer(no_args_is_help=True, help="Domains: what there is to learn, and what a task looks like.")
bench_app = typer.Typer(no_args_is_help=True, help="Measure this machine.")
check_app = typer.Typer(
    no_args_is_help=True, help="Try the laws on a plug-in, and measure the tests of tasks, ours or yours."
)
app.add_typer(models_app, name="models")
app.add_typer(domains_app, name="domains")
app.add_typer(bench_app, name="bench")
app.add_typer(check_app, name="check")
app.add_typer(sandbox_app, name="sandbox")
app.add_typer(review_app, name="review")
app.command("audit")(audit)
app.command("reverify")(reverify)
domains_app.command("audit")(domains_audit)
check_app.command("sandbox")(check_sandbox)
check_app.command("tests")(check_tests)

STALL_S = 600.0
"""Without any sign of progress for this long, a run's watchdog names the phase and writes the stacks."""

INTERRUPTED = 130

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, such as runs/quickstart.")]


def main() -> None:
    """Entry point: turns errors into sentences and exit codes."""
    try:
        app()
    except UserError as error:
        sys.exit(_complain(error, 2))
    except PosttrainError as error:
        sys.exit(_complain(error, 1))


@app.command()
def train(
    config: Annotated[Path | None, typer.Argument(help="A TOML file; see configs/.")] = None,
    run: Annotated[
        Path | None, typer.Option(help="Run directory; runs/NAME of the configuration if not given.")
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a key, such as seed=1 or stages.rl.steps=10."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where the run's last checkpoint stands.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything and print the plan; load no model.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Train: every stage of a configuration, with an evaluation before, between and after them."""
    from posttrain.observe.progress import progress
    from posttrain.observe.watchdog import Watchdog
    from posttrain.run.command import run_path, train_command

    directory = run_path(config, run)
    with progress(sys.stderr) as display, Watchdog(display, directory / "logs" / "stacks.txt", STALL_S) as observer:
        try:
            result = train_command(
                config, directory, overrides=overrides or [], resume=resume, dry_run=dry_run, observer=observer
            )
            if not dry_run:
                display.note(f"finished; the scores: posttrain show {directory}; the policy: {directory / 'model'}")
        except KeyboardInterrupt:
            display.note(f"interrupted; go on with: posttrain train --resume --run {directory}")
            raise typer.Exit(INTERRUPTED) from None
    finish(result, as_json)


@app.command()
def show(run: RunArgument, as_json: JsonFlag = False) -> None:
    """Print a run: the table before and after each stage, curves, alarms."""
    from rich.console import Console

    from posttrain.observe.show import render
    from posttrain.observe.summary import summary, to_json
    from posttrain.store.run_directory import RunDirectory

    found = summary(RunDirectory.open(run))
    if not as_json:
        render(found, Console())
    finish(to_json(found), as_json)


@app.command()
def report(
    run: RunArgument,
    out: Annotated[Path | None, typer.Option(help="Where to write; RUN/report.html if not given.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Write a run as one self-contained HTML page."""
    from posttrain.observe.report import write_report

    path = write_report(run, out)
    typer.echo(f"wrote {path}", err=True)
    finish({"report": str(path)}, as_json)


@app.command()
def replay(
    run: RunArgument,
    step: Annotated[int, typer.Argument(min=1, metavar="STEP", help="Of an RL stage, counted from 1.")],
    stage: Annotated[str | None, typer.Option(help="Name of the stage; the last RL stage if not given.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Learn from a recorded step again and compare. Exit code 0 where the same came back, 1 where it did not."""
    from rich.console import Console

    from posttrain.observe.progress import progress
    from posttrain.observe.replay_table import render
    from posttrain.run.replay_command import replay_command

    with progress(sys.stderr) as observer:
        found = replay_command(run, step, stage, observer)
    if not as_json:
        render(found, Console())
    finish(found, as_json)
    if not found["same"]:
        raise typer.Exit(1)


@models_app.command("list")
def models_list(as_json: JsonFlag = False) -> None:
    """The built-in models."""
    from posttrain.run.models import list_models

    rows = list_models()
    if not as_json:
        for row in rows:
            typer.echo(f"{row['name']:<14} {row['state']:<10} {row['licence']:<12} {row['description']}")
    finish(rows, as_json)


@models_app.command("get")
def models_get(
    name: Annotated[str, typer.Argument(help="A built-in name, or a hub id.")], as_json: JsonFlag = False
) -> None:
    """Fetch (or, for seedling, train) a model into the cache."""
    from posttrain.observe.progress import progress
    from posttrain.run.models import get_model

    with progress(sys.stderr) as observer:
        path = get_model(name, observer)
    typer.echo(f"{name} is at {path}", err=True)
    finish({"name": name, "path": str(path)}, as_json)


@domains_app.command("list")
def domains_list(as_json: JsonFlag = False) -> None:
    """The registered domains."""
    from posttrain.run.domains import list_domains

    rows = list_domains()
    if not as_json:
        for row in rows:
            sandbox = "sandbox" if row["needs_sandbox"] else ""
            typer.echo(f"{row['name']:<18} levels 1-{row['levels']}  {row['licence']:<12} {sandbox}")
    finish(rows, as_json)


@domains_app.command("show")
def domains_show(
    name: Annotated[str, typer.Argument(help="A registered name or path/to/file.py:Object.")],
    level: Annotated[int, typer.Option(min=1)] = 1,
    count: Annotated[int, typer.Option(min=1, max=100)] = 3,
    as_json: JsonFlag = False,
) -> None:
    """A few of a domain's tasks with their demonstrations."""
    from posttrain.run.domains import show_domain

    tasks = show_domain(name, level, count)
    if not as_json:
        for task in tasks:
            typer.echo(f"── {task['task_id']}\n{task['prompt']}\n→ {task['demonstration']}\n")
    finish(tasks, as_json)


@bench_app.command("memory")
def bench_memory(
    model: Annotated[str, typer.Option(help="A built-in name, a folder or a hub id.")] = "smollm2-135m",
    contexts: Annotated[
        str, typer.Option(metavar="TOKENS,…", help="Lengths of the sample, with commas between.")
    ] = "1024,4096,16384,32768",
    as_json: JsonFlag = False,
) -> None:
    """Peak memory and tokens/s of one training step by length, with and without chunking and recomputation."""
    from rich.console import Console

    from posttrain.observe.memory_table import render
    from posttrain.run.bench_memory import bench_memory as measure
    from posttrain.run.bench_memory import parse_contexts

    found = measure(model, parse_contexts(contexts), lambda sentence: typer.echo(sentence, err=True))
    if not as_json:
        render(found, Console())
    finish(found, as_json)


@bench_app.command("sandbox")
def bench_sandbox(
    rounds: Annotated[int, typer.Option(help="In each, all variants take turns; at least 5.")] = 7,
    as_json: JsonFlag = False,
) -> None:
    """Executions/s of the sandbox next to bare Python, and what it adds to a program's time."""
    from rich.console import Console

    from posttrain.observe.sandbox_table import render
    from posttrain.run.bench_sandbox import bench_sandbox as measure

    found = measure(rounds, lambda sentence: typer.echo(sentence, err=True))
    if not as_json:
        render(found, Console())
    finish(found, as_json)


@check_app.command("loss")
def check_loss(
    name: Annotated[str, typer.Argument(help="A registered name or path/to/file.py:Object.")],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="An option of the loss, such as clip_low=0.1."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Try every law on a loss, and show the smallest input that breaks one. Exit code 1 where one is broken."""
    from rich.console import Console

    from posttrain.observe.laws_table import render
    from posttrain.run.check_loss import check_loss as check

    found = check(name, settings or [], lambda sentence: typer.echo(sentence, err=True))
    if not as_json:
        render(found.name, found.laws, Console())
    finish(found.plain(), as_json)
    if not found.holds:
        raise typer.Exit(1)


@app.command()
def version(as_json: JsonFlag = False) -> None:
    """Print the version."""
    from importlib.metadata import version as installed

    if not as_json:
        typer.echo(installed("posttrain"))
    finish({"version": installed("posttrain")}, as_json)


def _print_version(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[bool, typer.Option("--version", is_eager=True, callback=_print_version, help="As `version`.")] = False,
) -> None: ...


def _complain(error: PosttrainError, code: int) -> int:
    typer.echo(f"posttrain: {error}", err=True)
    if "--json" in sys.argv:
        typer.echo(json.dumps({"error": {"kind": type(error).__name__, "message": str(error)}}))
    return code
