"""`make experiment`: the quickstart with three seeds, and supervised fine-tuning alone with the same compute.

Runs what is missing under `runs/experiment` (an interrupted call goes on where it stopped) and prints one table: each
seed's scores after every stage, the paired gain of RL over SFT, and of RL over the control. The evaluation suite and
its sampling are the same everywhere, so every difference is paired.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from posttrain.core.types import EvalReport
from posttrain.gate.statistics import Gain, paired_gain
from posttrain.store.reports import read_reports

SEEDS = (0, 1, 2)
ARMS = {"rl": Path("configs/quickstart.toml"), "control": Path("configs/control.toml")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs/experiment"))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    arguments = parser.parse_args()
    for seed in arguments.seeds:
        for arm, config in ARMS.items():
            train(config, arguments.runs / f"{arm}-{seed}", seed)
    print("| seed | base | SFT | SFT → RL | control | RL over SFT | RL over control |\n|---|---|---|---|---|---|---|")
    for seed in arguments.seeds:
        print(row(arguments.runs, seed))


def train(config: Path, run: Path, seed: int) -> None:
    """Begin or continue one run; nothing where it has finished."""
    if (run / "result.json").exists():
        return
    command = [sys.executable, "-m", "posttrain", "train", str(config), "--run", str(run)]
    more = ["--resume"] if (run / "manifest.json").exists() else ["--set", f"seed={seed}"]
    subprocess.run([*command, *more], check=True)


def row(runs: Path, seed: int) -> str:
    base, sft, rl = reports(runs / f"rl-{seed}")
    control = reports(runs / f"control-{seed}")[-1]
    scores = [score(report) for report in (base, sft, rl, control)]
    gains = [gain(paired_gain(before, rl)) for before in (sft, control)]
    return f"| {seed} | {' | '.join(scores)} | {' | '.join(gains)} |"


def reports(run: Path) -> list[EvalReport]:
    return read_reports(run / "evals")


def score(report: EvalReport) -> str:
    low, high = report.mean.ci95
    return f"{100 * report.mean.pass_at_1:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def gain(found: Gain) -> str:
    low, high = found.ci95
    worse = [name for name, domain in found.domains.items() if domain.worse]
    text = f"{100 * found.mean:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"
    return text + (f", worse: {', '.join(worse)}" if worse else "")


if __name__ == "__main__":
    main()
