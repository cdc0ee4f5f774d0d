"""`posttrain report RUN`: one HTML page that holds everything it shows, scripts and outside resources excluded.

What the model wrote is escaped by the template, and a content policy in the page forbids scripts besides. It judges
nothing: `alarms` does.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from posttrain.observe.attempts import attempt_views, unscored_reasons
from posttrain.observe.curves import charts, time_shares
from posttrain.observe.forest import forest_plot
from posttrain.observe.run_state import duration
from posttrain.observe.show import percent
from posttrain.observe.summary import summary
from posttrain.observe.token_text import token_text
from posttrain.store.files import write_bytes
from posttrain.store.metrics import read_metrics
from posttrain.store.run_directory import RunDirectory
from posttrain.store.trajectories import TrajectoryStore
from posttrain.store.weight_changes import WeightChange, read_weight_changes


def write_report(run: Path, out: Path | None = None) -> Path:
    """Write the page of the run in the folder `run` and return where: `report.html` in it unless told otherwise.

    Raises `UserError` where there is no run, `StoreError` for a damaged record or a page that cannot be written.
    """
    path = run / "report.html" if out is None else out
    write_bytes(path, html_report(RunDirectory.open(run)).encode())
    return path


def html_report(run: RunDirectory) -> str:
    """The page's text."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(duration=duration, percent=percent)
    found = summary(run)
    records = read_metrics(run.metrics).records
    store = TrajectoryStore(run.trajectories)
    manifest = run.manifest()
    with_mean = {**found.domains, "mean": found.mean} if found.labels else {}
    return environment.get_template("report.html.j2").render(
        summary=found,
        manifest=manifest,
        config=json.dumps(run.config(), indent=2, ensure_ascii=False),
        written=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        scores=with_mean,
        forest=forest_plot(with_mean) if with_mean else None,
        charts=charts(records, list(found.domains) or list(found.curves)),
        time_shares=time_shares(records),
        weight_changes=lasting(read_weight_changes(run.reward_weights)),
        attempts=attempt_views(store, token_text(run, manifest.model)),
        unscored=unscored_reasons(store, TrajectoryStore(run.evals)),
    )


def lasting(changes: Sequence[WeightChange]) -> list[WeightChange]:
    """What rules have done, and the ends of each stretch that a schedule moved a weight step by step."""
    shown: list[WeightChange] = []
    latest: dict[tuple[int, str, str], int] = {}
    for change in changes:
        key = (change.stage_index, change.domain, change.part)
        before = shown[latest[key]] if key in latest else None
        if before is not None and _scheduled(before) and _scheduled(change) and before.after == change.before:
            shown[latest[key]] = dataclasses.replace(change, before=before.before)
        else:
            latest[key] = len(shown)
            shown.append(change)
    return shown


def _scheduled(change: WeightChange) -> bool:
    return change.cause.startswith("the schedule")
