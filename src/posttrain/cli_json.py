"""What the files of the command line share: the flag `--json`, and printing one value where it is given."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

JsonFlag = Annotated[bool, typer.Option("--json", help="One JSON value on standard output, and nothing else there.")]


def finish(value: Any, as_json: bool) -> None:
    """The last line of a command."""
    if as_json:
        typer.echo(json.dumps(value, indent=2, allow_nan=False))
