"""Dynamic against fixed weights of a reward's parts: one start, three seeds, one table and one picture.

`python -m benchmarks.reward_weights`, from the repository's root, runs what is missing under `runs/reward_weights`; an
interrupted call goes on where it stopped. The start is a seedling that has read sums in four styles
(`configs/drills/steps_start.toml`), the arms are `configs/drills/reward_*.toml`. It tunes nothing for either arm.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.experiment import score, train
from benchmarks.screenshot import screenshot

from posttrain.core.seeding import stable_random
from posttrain.core.types import Split
from posttrain.domains.arithmetic_steps import ArithmeticSteps
from posttrain.gate.statistics import paired_gain
from posttrain.observe.plots import Series, line_chart
from posttrain.store.metrics import read_metrics
from posttrain.store.reports import read_reports

RUNS = Path("runs/reward_weights")
START = Path("configs/drills/steps_start.toml")
ARMS = {arm: Path(f"configs/drills/reward_{arm}.toml") for arm in ("fixed", "dynamic")}
DOMAIN = ArithmeticSteps()
PARTS = ("outcome", "process", "format", "efficiency")
ROWS = 2400
LAST = 5
"""Steps at the end of a run whose mean stands for it."""


def clean(first: str, second: str, answer: str) -> str:
    return f"{first}. {second}. {answer}"


def bare(first: str, second: str, answer: str) -> str:
    return answer


def doubled(first: str, second: str, answer: str) -> str:
    """A sentence said twice: no form."""
    return f"{first}. {first}. {second}. {answer}"


def checked(first: str, second: str, answer: str) -> str:
    """In good form, and longer than it need be."""
    result = answer.rpartition(" ")[2]
    return f"{first}. {second}. Check {result} = {result}. {answer}"


STYLES: Sequence[Callable[[str, str, str], str]] = (clean, bare, doubled, checked)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    arguments = parser.parse_args()
    write_styles(RUNS / "styles.jsonl")
    train(START, RUNS / "start", 0)
    for seed in arguments.seeds:
        for arm, config in ARMS.items():
            train(config, RUNS / f"{arm}-{seed}", seed)
    start = read_reports(RUNS / "start" / "evals")[-1]
    print(f"start: {score(start)}\n")
    heads = ("arm", "pass@1 by seed", "gain over the start", *PARTS, "tokens", "last weights")
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for arm in ARMS:
        print(row(arm, [RUNS / f"{arm}-{seed}" for seed in arguments.seeds]))
    draw({arm: [RUNS / f"{arm}-{seed}" for seed in arguments.seeds] for arm in ARMS})


def write_styles(path: Path) -> None:
    """Training tasks in a style each, drawn with a fixed seed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        for index in range(ROWS):
            task = DOMAIN.task(Split.TRAIN, 0, index, 1)
            first, second, answer = DOMAIN.demonstration(task).split(". ")
            style = stable_random("styles", index).choice(STYLES)
            row = {"prompt": task.prompt[0].content, "completion": style(first, second, answer)}
            file.write(json.dumps(row) + "\n")


def row(arm: str, runs: Sequence[Path]) -> str:
    start = read_reports(RUNS / "start" / "evals")[-1]
    reports = [read_reports(run / "evals")[-1] for run in runs]
    gains = [100 * paired_gain(start, report).mean for report in reports]
    cells = [
        arm,
        ", ".join(score(report) for report in reports),
        f"{statistics.mean(gains):+.1f} ({min(gains):+.1f} to {max(gains):+.1f})",
        *(f"{of_last(runs, f'reward/{DOMAIN.name}/{part}'):.2f}" for part in PARTS),
        f"{of_last(runs, 'mean_tokens'):.1f}",
        ", ".join(f"{of_last(runs, f'reward_weight/{DOMAIN.name}/{part}'):.2g}" for part in PARTS),
    ]
    return f"| {' | '.join(cells)} |"


def of_last(runs: Sequence[Path], name: str) -> float:
    lines = [line for run in runs for line in read_metrics(run / "metrics.jsonl").records[-LAST:]]
    return statistics.mean(line.values[name] for line in lines if name in line.values)


def draw(arms: Mapping[str, Sequence[Path]]) -> None:
    """`curves.svg`, one panel a part with its mean over the seeds and its weight in both arms; `curves.png` where there
    is a Chromium."""
    panels = []
    for place, part in enumerate(PARTS):
        lines = [
            Series(f"{what}{arm}", mean_curve(runs, f"{metric}/{DOMAIN.name}/{part}"), 2 * number + shift)
            for number, (arm, runs) in enumerate(arms.items())
            for shift, (what, metric) in enumerate((("", "reward"), ("weight, ", "reward_weight")))
        ]
        chart = line_chart(part, lines, from_zero=True)
        assert chart is not None, f"nothing was recorded of {part}"
        legend = "".join(
            f'<text class="c{color}" x="{46 + 105 * number}" y="-6">{name}</text>'
            for number, (name, color, _) in enumerate(chart.legend)
        )
        inner = str(chart.svg).partition(">")[2].removesuffix("</svg>")
        title = f'<text class="title" x="46" y="-22">{part}</text>'
        x, y = 480 * (place % 2), 260 * (place // 2)
        panels.append(f'<g transform="translate({x} {y})">{title}{legend}{inner}</g>')
    (RUNS / "curves.svg").write_text(_SVG.format(panels="".join(panels)), encoding="utf-8")
    screenshot(RUNS / "curves.svg", RUNS / "curves.png", 1920, 1080)


def mean_curve(runs: Sequence[Path], name: str) -> tuple[tuple[float, float], ...]:
    by_step: dict[int, list[float]] = {}
    for run in runs:
        for record in read_metrics(run / "metrics.jsonl").records:
            if name in record.values:
                by_step.setdefault(record.step, []).append(record.values[name])
    return tuple((float(step), statistics.mean(values)) for step, values in sorted(by_step.items()))


_SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="-10 -40 960 540" width="1920" height="1080">
<style>
text {{ font: 11px sans-serif; fill: #5d6875; }} text.title {{ font-size: 13px; font-weight: 600; fill: #1b2027; }}
.grid {{ stroke: #e3e6ea; }} .line, .raw {{ fill: none; stroke-width: 2; }} .raw {{ stroke-width: 1; opacity: .35; }}
.hidden {{ opacity: 0; }}
text.c0, text.c1 {{ fill: #2166c4; }} text.c2, text.c3 {{ fill: #d1541a; }}
polyline.c0, polyline.c1 {{ stroke: #2166c4; }} polyline.c2, polyline.c3 {{ stroke: #d1541a; }}
polyline.c1, polyline.c3 {{ stroke-dasharray: 3 4; stroke-width: 1.5; }}
</style>
<rect x="-10" y="-40" width="960" height="540" fill="#ffffff"/>
{panels}
</svg>
"""


if __name__ == "__main__":
    main()
