"""`posttrain show RUN` for a terminal: what was trained, what stands beside each score, and the table itself last.

Renders a `Summary`; reads nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from posttrain.core.types import DomainScore
from posttrain.observe.run_state import duration
from posttrain.observe.summary import PartSummary, StageSummary, Summary

SPARK_WIDTH = 16
_BLOCKS = "▁▂▃▄▅▆▇█"


def render(found: Summary, console: Console) -> None:
    """Print the summary; fits a terminal of 80 columns while there are three evaluations."""
    console.print(_header(found))
    if found.labels:
        console.print(_beside(found), Text(), _scores(found), Text(), sep="\n")
        if found.gain_rl is not None:
            low, high = found.gain_rl.ci95
            gain = f"Gain of RL: {100 * found.gain_rl.mean:+.1f} points"
            console.print(Text(f"{gain}, paired 95 % interval [{100 * low:+.1f}, {100 * high:+.1f}]", style="bold"))
    else:
        console.print(Text("No evaluation is there yet.", style="dim"))
    if found.parts:
        console.print(Text(), _parts(found.parts), sep="\n")
    for label, score in found.within.items():
        console.print(Text(f"{label}: {interval(score)} on the same suite", style="dim"))
    for sentence in found.alarms:
        console.print(Text(f"! {sentence}", style="yellow"))


def sparkline(values: Sequence[float], width: int = SPARK_WIDTH) -> str:
    """Block characters from 0 to 1 (or the largest value), each the mean of its share of the steps."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return ""
    top, count = max(1.0, *finite), min(width, len(finite))
    edges = [round(i * len(finite) / count) for i in range(count + 1)]
    means = [sum(finite[a:b]) / (b - a) for a, b in pairwise(edges)]
    return "".join(_BLOCKS[min(7, max(0, int(8 * mean / top)))] for mean in means)


def percent(value: float | None, *, digits: int = 1) -> str:
    """`41.2` for 0.412; a dash for what was not measured."""
    return "–" if value is None or not math.isfinite(value) else f"{100 * value:.{digits}f}"


def interval(score: DomainScore) -> str:
    """`41.2 [38, 44]`, per cent."""
    low, high = (percent(bound, digits=0) for bound in score.ci95)
    return f"{percent(score.pass_at_1)} [{low}, {high}]"


def _header(found: Summary) -> Text:
    state = "finished" if found.finished else "unfinished"
    stages = " → ".join(_stage(stage) for stage in found.stages) or "no stage yet"
    text = Text()
    text.append(f"{found.run}", style="bold").append(f"  {state}, {duration(found.wall_s)}, seed {found.seed}\n")
    return text.append(f"{found.model}: {stages} steps\n")


def _stage(stage: StageSummary) -> str:
    planned = f" of {stage.planned_steps}" if stage.planned_steps not in (None, stage.steps) else ""
    return f"{stage.name} {stage.steps}{planned}"


def _scores(found: Summary) -> Table:
    table = _table("Held-out pass@1 in %, with 95 % interval")
    table.add_column("domain", no_wrap=True)
    for label in found.labels:
        table.add_column(label, justify="right", no_wrap=True)
    curves = any(found.curves.values())
    if curves:
        table.add_column("reward in RL", no_wrap=True)
    for domain, by_label in found.domains.items():
        cells = [interval(by_label[label]) if label in by_label else "–" for label in found.labels]
        table.add_row(Text(domain), *cells, *([sparkline(found.curves.get(domain, ()))] if curves else []))
    table.add_section()
    table.add_row("mean", *(interval(found.mean[label]) for label in found.labels), style="bold")
    return table


def _parts(parts: Sequence[PartSummary]) -> Table:
    table = _table("Parts of the reward: mean of each in the first and last step, in %")
    for name in ("domain", "part", "weight", "first", "last", "over the steps"):
        table.add_column(name, justify="right" if name in ("first", "last") else "left", no_wrap=True)
    for number, part in enumerate(parts):
        same = number and parts[number - 1].domain == part.domain
        weights = dict.fromkeys(f"{weight:.3g}" for weight in (part.first_weight, part.last_weight))
        ends = [percent(part.curve[end]) if part.curve else "–" for end in (0, -1)]
        table.add_row(Text("" if same else part.domain), part.part, " → ".join(weights), *ends, sparkline(part.curve))
    return table


def _beside(found: Summary) -> Table:
    table = _table("Beside each score: greedy, pass@k and the best constant answer, in %")
    table.add_column("domain", no_wrap=True)
    table.add_column("after", no_wrap=True)
    samples = max((score.samples for score in found.mean.values()), default=1)
    for name in ("greedy", f"pass@{samples}", "const", "answers", "n", "tokens", "cut", "lost"):
        table.add_column(name, justify="right", no_wrap=True)
    for domain, by_label in [*found.domains.items(), ("mean", found.mean)]:
        for number, (label, score) in enumerate(by_label.items()):
            table.add_row(Text("" if number else domain), label, *_details(score))
        table.add_section()
    return table


def _table(title: str) -> Table:
    return Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        collapse_padding=True,
    )


def _details(score: DomainScore) -> list[str]:
    return [
        percent(score.greedy),
        percent(score.pass_at_k),
        percent(score.best_constant),
        str(score.distinct_answers),
        str(score.n),
        f"{score.mean_tokens:.0f}",
        percent(score.truncated_share),
        str(score.no_verdict),
    ]
