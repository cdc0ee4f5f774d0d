"""A sandbox as a command line names it."""

from __future__ import annotations

import tomllib
from typing import Any

from posttrain.core.errors import ConfigError


def sandbox_spec(text: str) -> dict[str, Any] | str:
    """A name, or the table that a configuration would have: `{name = "remote", url = …}`. Raises `ConfigError`."""
    if not text.lstrip().startswith("{"):
        return text
    try:
        spec: dict[str, Any] = tomllib.loads(f"sandbox = {text}")["sandbox"]
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f'a sandbox is a name or a table like {{name = "local"}}, not {text!r}: {error}') from None
    return spec
