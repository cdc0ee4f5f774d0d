"""The drill: a domain whose verifier has a hole, RL that finds it, the audit that sees it, the fix, and what to undo.

    .venv/bin/python -m benchmarks.audit_drill FOLDER [KEY=VALUE …]

trains by `drill.toml` on a copy of `drill_sums.py` until the audit has stopped it, shows the audit, mends the copy and
raises its version, verifies the stored attempts again and goes on with the mended verifier to the end. `KEY=VALUE` are
overrides as `--set` takes them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from posttrain.core.errors import StoppedByRuleError
from posttrain.observe import audit_table, reverify_table
from posttrain.observe.audit import Audit, audit
from posttrain.observe.progress import PlainProgress
from posttrain.run.load import load
from posttrain.run.reverify_command import reverify_command
from posttrain.run.train import resume_run, start_run
from posttrain.store.metrics import read_metrics
from posttrain.store.run_directory import RunDirectory

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Drill:
    stopped: str
    """Why the run ended before its last step; empty where it did not."""
    found: Audit
    reverified: dict[str, Any]


def drill(folder: Path, overrides: Sequence[str], config: Path = HERE / "drill.toml") -> Drill:
    """Raises AssertionError where `folder` has the drill's domain already."""
    folder.mkdir(parents=True, exist_ok=True)
    domain, run = folder / "drill_sums.py", folder / "run"
    assert not domain.exists(), f"{folder} has been drilled in: choose another folder"
    domain.write_text((HERE / "drill_sums.py").read_text())
    checked = load(config, [f'domains.drill_sums.source="{domain}:DrillSums"', *overrides])
    stopped = ""
    with PlainProgress(sys.stderr) as observer:
        try:
            start_run(checked, run, observer)
        except StoppedByRuleError as error:
            stopped = str(error)
        found = audit(RunDirectory.open(run))
        domain.write_text(domain.read_text().replace('VERSION = "1"', 'VERSION = "2"', 1))
        reverified = reverify_command(run, None, observer)
        if stopped:
            resume_run(run, observer)
        return Drill(stopped, found, reverified)


def main() -> None:
    folder = Path(sys.argv[1])
    done = drill(folder, sys.argv[2:])
    console = Console(width=120)
    console.print(f"stopped: {done.stopped or 'no'}", soft_wrap=True)
    audit_table.render(done.found, console)
    reverify_table.render(done.reverified, console)
    curves = [
        [record.step, *(record.values.get(f"{name}/drill_sums") for name in ("reward", "held_out", "suspect"))]
        for record in read_metrics(folder / "run" / "metrics.jsonl").records
        if record.stage == "rl"
    ]
    print(json.dumps({"step, reward, held_out, suspect": curves}))


if __name__ == "__main__":
    main()
