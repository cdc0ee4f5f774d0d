"""The command line's verbs for sandboxes, and for tests that run in one: `posttrain sandbox …`, `posttrain check
sandbox` and `posttrain check tests`. No logic."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from posttrain.cli_json import JsonFlag, finish
from posttrain.core.sandboxing import SandboxLimits

sandbox_app = typer.Typer(no_args_is_help=True, help="Run programs that nobody trusts.")
_DEFAULT = SandboxLimits()
_NAME = "A registered name, path/to/file.py:Object, or a table such as '{name = \"remote\", url = …}'."


@sandbox_app.command("run")
def sandbox_run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Python, or a script whose first line names its shell.")],
    stdin: Annotated[Path | None, typer.Option(help="A file to give to the program as its standard input.")] = None,
    wall_s: Annotated[float, typer.Option("--wall-s", help="Seconds that may go by.")] = 5.0,
    cpu_s: Annotated[float, typer.Option("--cpu-s", help="Seconds of CPU.")] = _DEFAULT.cpu_s,
    memory_mib: Annotated[int, typer.Option("--memory-mib")] = _DEFAULT.memory_mib,
    processes: Annotated[int, typer.Option("--processes", help="Threads count too.")] = _DEFAULT.processes,
    output_kib: Annotated[int, typer.Option("--output-kib", help="Both streams together.")] = _DEFAULT.output_kib,
    disk_mib: Annotated[int, typer.Option("--disk-mib")] = _DEFAULT.disk_mib,
    sandbox: Annotated[str, typer.Option(help=_NAME)] = "local",
    as_json: JsonFlag = False,
) -> None:
    """Run one program in a sandbox. Exit code 0 whatever the program did."""
    from posttrain.run.sandbox_run import sandbox_run as run

    limits = SandboxLimits(wall_s, cpu_s, memory_mib, processes, output_kib, disk_mib)
    found = run(file, stdin, limits, sandbox)
    if not as_json:
        typer.echo(found["stdout"], nl=False)
        typer.echo(found["stderr"], nl=False, err=True)
        typer.echo(f"{found['class']} {found['reason']}".rstrip(), err=True)
    finish(found, as_json)


@sandbox_app.command("status")
def sandbox_status(
    sandbox: Annotated[str, typer.Option(help=_NAME)] = "local",
    as_json: JsonFlag = False,
) -> None:
    """What isolation this machine gives, and what brings more; of a remote sandbox, the server's figures."""
    from rich.console import Console

    from posttrain.observe.sandbox_status_table import render
    from posttrain.run.sandbox_status import sandbox_status as status

    found = status(sandbox)
    if not as_json:
        render(found.name, found.tier, found.trial_s, found.status, Console())
    finish(found.plain(), as_json)


@sandbox_app.command("serve")
def sandbox_serve(
    token_file: Annotated[Path, typer.Option(help="A file with the token that clients must have; 16 characters.")],
    host: Annotated[str, typer.Option(help="Where to listen; 0.0.0.0 is everywhere.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8900,
    concurrency: Annotated[
        int | None, typer.Option(help="Executions at once; if not given, as many as the sandbox 'local' has.")
    ] = None,
    max_waiting: Annotated[int, typer.Option(help="Executions that may wait; more are told to come back.")] = 256,
    sessions: Annotated[int, typer.Option(help="Sessions open at once; more are told to come back.")] = 16,
) -> None:
    """Serve this machine's sandbox to `sandbox = {name = "remote", …}` until SIGTERM, then let what runs end."""
    from posttrain.run.sandbox_serve import sandbox_serve as serve

    serve(host, port, token_file, concurrency, max_waiting, sessions, lambda sentence: typer.echo(sentence, err=True))


def check_sandbox(
    name: Annotated[str, typer.Argument(help=_NAME)] = "local",
    as_json: JsonFlag = False,
) -> None:
    """Try every attack and every expectation on a sandbox. Exit code 1 where one is not contained or not met."""
    from rich.console import Console

    from posttrain.observe.attacks_table import render
    from posttrain.run.check_sandbox import check_sandbox as check

    found = check(name, lambda sentence: typer.echo(sentence, err=True))
    if not as_json:
        render(found.name, found.tier, found.attacks, found.conformance, Console())
    finish(found.plain(), as_json)
    if not found.holds:
        raise typer.Exit(1)


def check_tests(
    tasks: Annotated[
        str,
        typer.Argument(metavar="TASKS", help="A .jsonl file of tasks, or a domain: a name or path/to/file.py:Object."),
    ],
    sandbox: Annotated[str, typer.Option(help=_NAME)] = "local",
    count: Annotated[
        int | None, typer.Option(min=1, help="Of a domain: tasks of each level and split; 3 if not given.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Measure the hidden tests of programming tasks: coverage, mutants, flaky tests. Exit code 1 where one is refused.

    A line of a file is an object with function, tests (pairs of a list of arguments and the expected value) and
    solution. It may have task_id, probes (more lists of arguments: mutants that answer them all as the solution does
    are held against no test) and replies (sampled from a policy, for the difficulty).
    """
    from rich.console import Console

    from posttrain.observe.quality_table import render
    from posttrain.run.check_tests import check_tests as check

    found = check(tasks, sandbox, count, lambda sentence: typer.echo(sentence, err=True))
    if not as_json:
        render(found.name, found.tier, found.tasks, found.difficulty, Console())
    finish(found.plain(), as_json)
    if not found.holds:
        raise typer.Exit(1)
