"""Every preset on one small problem: the same start, tasks, steps and learning rate, three seeds; one table.

`python -m benchmarks.presets` runs what is missing under `runs/presets`; an interrupted call goes on where it stopped.
The problem is the code domain at its easiest level, the start a seedling that has been through `configs/seedling.toml`.
KL is measured against the start in every run, with coefficient 0 where a preset has none. It tunes nothing for any
preset.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path

from benchmarks.experiment import train

from posttrain.run.presets import PRESETS
from posttrain.store.metrics import read_metrics
from posttrain.store.reports import read_reports

CONFIG = """
model = {model}
evaluate_base = false
[domains.python_functions]
level = 1
[evaluation]
tasks = 128
samples = 4
[checkpoints]
every_steps = 0
[[stages]]
kind = "rl"
preset = "{preset}"
steps = {steps}
groups_per_step = 16
group_size = 8
optimizer = {{ learning_rate = {learning_rate}, warmup_steps = 3 }}
{kl}
"""
LAST = 5
"""Steps at the end of a run whose mean stands for it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=Path("runs/seedling/model"))
    parser.add_argument("--runs", type=Path, default=Path("runs/presets"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    arguments = parser.parse_args()
    for seed in arguments.seeds:
        for preset in PRESETS:
            train_preset(preset, seed, arguments)
    print("| preset | pass@1 by seed | mean | KL | entropy | seconds a step |\n|---|---|---|---|---|---|")
    for preset in PRESETS:
        print(row(preset, [arguments.runs / f"{preset}-{seed}" for seed in arguments.seeds]))


def train_preset(preset: str, seed: int, arguments: argparse.Namespace) -> None:
    arguments.runs.mkdir(parents=True, exist_ok=True)
    config = arguments.runs / f"{preset}.toml"
    config.write_text(
        CONFIG.format(
            model=json.dumps(str(arguments.model)),
            preset=preset,
            steps=arguments.steps,
            learning_rate=arguments.learning_rate,
            kl="" if "kl" in PRESETS[preset] else "kl = { coefficient = 0.0 }",
        ),
        encoding="utf-8",
    )
    train(config, arguments.runs / f"{preset}-{seed}", seed)


def row(preset: str, runs: Sequence[Path]) -> str:
    scores = [100 * read_reports(run / "evals")[-1].mean.pass_at_1 for run in runs]
    cells = [
        preset,
        ", ".join(f"{score:.1f}" for score in scores),
        f"{statistics.mean(scores):.1f}",
        f"{of_last(runs, 'kl'):.4f}",
        f"{of_last(runs, 'entropy'):.2f}",
        f"{of_last(runs, 'time/step_s'):.2f}",
    ]
    return f"| {' | '.join(cells)} |"


def of_last(runs: Sequence[Path], name: str) -> float:
    """Mean over the runs' last steps, in nats a token or seconds."""
    lines = [line for run in runs for line in read_metrics(run / "metrics.jsonl").records[-LAST:]]
    return statistics.mean(line.values[name] for line in lines)


if __name__ == "__main__":
    main()
