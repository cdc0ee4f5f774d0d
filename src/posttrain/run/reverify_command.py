"""`posttrain reverify`, without the parsing: what changed, as plain data for JSON and for a terminal."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from posttrain.core.protocols import Observer
from posttrain.run.reverify import Reverified, reverify
from posttrain.store.files import plain, write_json
from posttrain.store.run_directory import RunDirectory


def reverify_command(run: Path, domain: str | None, observer: Observer) -> dict[str, Any]:
    """Raises as `reverify`. The same object is left in `RUN/reverified/summary.json`."""
    content = told(reverify(run, domain, observer), run)
    if content["domains"]:
        write_json(RunDirectory.open(run).reverified / "summary.json", content)
    return content


def told(found: Reverified, run: Path) -> dict[str, Any]:
    by_step = Counter((c.stage, c.step, c.domain, str(c.old), str(c.new), c.learned) for c in found.changes)
    names = ("stage", "step", "domain", "old", "new", "learned")
    content: dict[str, Any] = plain(
        {
            "run": found.run,
            "domains": [asdict(domain) for domain in found.domains],
            "unchanged": list(found.unchanged),
            "by_step": [{**dict(zip(names, key, strict=True)), "attempts": n} for key, n in by_step.items()],
            "affected_steps": [{"stage": stage, "step": step} for stage, step in found.affected_steps],
            "checkpoint": found.checkpoint,
            "advice": advice(found, run),
            "changes": [asdict(change) for change in found.changes],
        }
    )
    return content


def advice(found: Reverified, run: Path) -> str:
    """What to do now, in words."""
    if not found.domains:
        return (
            "Every stored verdict is of its verifier's present version: nothing was verified again. Name a domain with "
            "--domain to do it all the same."
        )
    if not found.changes:
        return "No verdict changed."
    if not found.affected_steps:
        return "Verdicts changed, and no step learned from one of them."
    (stage, step), count = found.affected_steps[0], len(found.affected_steps)
    steps = "1 training step" if count == 1 else f"{count} training steps"
    begin = f"{steps} learned from verdicts that have changed, first step {step} of {stage}."
    if found.checkpoint is None:
        return (
            f"{begin} No checkpoint from before it is kept: to be rid of what was learned, train anew with the fixed "
            "verifier (checkpoints.keep keeps more of them)."
        )
    return (
        f"{begin} The last checkpoint before it is {run / 'checkpoints' / found.checkpoint}: to be rid of what was "
        "learned, remove the later ones beside it and go on from there with: posttrain train --resume --run "
        f"{run}"
    )
