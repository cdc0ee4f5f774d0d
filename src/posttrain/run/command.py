"""`posttrain train`, without the parsing: from paths and flags to a run, a resumption or a plan."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from posttrain.core.errors import ConfigError
from posttrain.core.protocols import Observer
from posttrain.run.load import load
from posttrain.run.parts import make_domains, make_suite
from posttrain.run.plan import plan
from posttrain.run.train import check, resume_run, start_run


def train_command(
    config: Path | None,
    directory: Path,
    *,
    overrides: Sequence[str],
    resume: bool,
    dry_run: bool,
    observer: Observer,
) -> dict[str, Any]:
    """What `train` prints as JSON. Raises `UserError` for flags that contradict one another."""
    if dry_run:
        if config is None:
            raise ConfigError("--dry-run needs a configuration file")
        checked = load(config, overrides)
        domains = make_domains(checked.domains)
        check(checked, domains)
        planned = plan(checked, make_suite(checked, domains))
        print(json.dumps(planned, indent=2), file=sys.stderr)
        return planned
    if resume:
        if overrides:
            raise ConfigError("a resumed run keeps its configuration: --set and --resume exclude each other")
        result = resume_run(directory, observer)
    else:
        if config is None:
            raise ConfigError("posttrain train needs a configuration file, or --resume with --run")
        result = start_run(load(config, overrides), directory, observer)
    return {"run": str(result.run), "steps": result.steps, "wall_s": result.wall_s}


def run_path(config: Path | None, run: Path | None) -> Path:
    """Where a run lives: where it was told to, or `runs/` and the configuration's name."""
    if run is not None:
        return run
    if config is None:
        raise ConfigError("give a configuration file, or the run directory with --run")
    return Path("runs") / config.stem
