"""`posttrain sandbox run FILE`, without the parsing: one program in a sandbox, and how it went as plain data."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from posttrain.core.errors import ConfigError, SandboxError, UserError
from posttrain.core.protocols import Sandbox
from posttrain.core.registry import build
from posttrain.core.sandboxing import ResultClass, RunResult, SandboxLimits
from posttrain.run.sandbox_spec import sandbox_spec


def sandbox_run(file: Path, stdin: Path | None, limits: SandboxLimits, name: str) -> dict[str, Any]:
    """Raises `UserError` for files that cannot be read and limits that allow nothing, `SandboxError` for our fault."""
    for limit, amount in vars(limits).items():
        if not amount > 0:
            raise ConfigError(f"the limit {limit} is {amount}; it must be more than 0")
    source, given = _text(file), _text(stdin) if stdin else ""
    sandbox: Sandbox = build("sandbox", sandbox_spec(name))
    run = asyncio.run(_run(sandbox, _argv(file.name, source), {file.name: source}, given, limits))
    if run.result_class is ResultClass.INFRASTRUCTURE_ERROR:
        raise SandboxError(f"the sandbox {name!r} could not run {str(file)!r}: {run.reason}")
    return {
        "class": run.result_class,
        "stdout": run.stdout,
        "stderr": run.stderr,
        "exit_code": run.exit_code,
        "wall_s": run.wall_s,
        "cpu_s": run.cpu_s,
        "peak_memory_mib": run.peak_memory_mib,
        "tier": run.tier,
        "truncated": run.truncated,
        "reason": run.reason,
    }


async def _run(
    sandbox: Sandbox, argv: list[str], files: dict[str, str], stdin: str, limits: SandboxLimits
) -> RunResult:
    try:
        return await sandbox.run(argv, files=files, stdin=stdin, limits=limits)
    finally:
        await sandbox.close()


def _argv(name: str, source: str) -> list[str]:
    """The interpreter of the first line, looked up inside by its name; Python where there is no such line."""
    first = source.partition("\n")[0]
    words = first[2:].split() if first.startswith("#!") else []
    if words and words[0].endswith("/env"):
        words = words[1:]
    return [*(words or ["python3"]), name]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UserError(f"{path} is not a text file in UTF-8") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
