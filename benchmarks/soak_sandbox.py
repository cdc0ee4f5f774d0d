"""`make soak`: does the sandbox stay fast, right and tidy while some of the programs mean harm?

Windows without and with hostile programs take turns (there, here, here, there, …) on one sandbox with two executions
at once. Innocent programs are calls with five inputs; their answers are compared outside. What the process holds is
counted before, when the slots are warm, at the end, and after closing. `soak.json` has all of it, `soak.svg` the
innocent executions a minute over time, and `soak.png` the same where a Chromium is there to draw it. Exit code 1 where
an answer was wrong, an error was ours, or something stayed behind.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.screenshot import screenshot
from benchmarks.soak_census import Census, census
from benchmarks.soak_programs import HOSTILE, innocent

from posttrain.core.sandboxing import ResultClass, SandboxLimits
from posttrain.observe.plots import Series, line_chart
from posttrain.sandbox.local import LocalSandbox

CONCURRENCY = 2
LIMITS = SandboxLimits()
HOSTILE_LIMITS = SandboxLimits(wall_s=0.05, cpu_s=1.0, memory_mib=64, processes=8, output_kib=16, disk_mib=1)
NUM_WINDOWS, MIN_WINDOW_S, MAX_WINDOW_S = 60, 1.5, 10.0
MAX_GROWTH_MIB = 32.0
INNOCENT = "innocent"


@dataclass
class Window:
    """A stretch of time; it ends when the last execution that began in it has ended."""

    hostile: bool
    started_s: float
    duration_s: float = 0.0
    num_innocent: int = 0
    num_hostile: int = 0

    @property
    def per_minute(self) -> float:
        """Innocent executions."""
        return 60 * self.num_innocent / self.duration_s


@dataclass
class Soak:
    share: float
    """Of the programs of a hostile window."""
    rng: random.Random
    windows: list[Window] = field(default_factory=list)
    classes: dict[str, Counter[str]] = field(default_factory=dict)
    """Result classes by kind of program."""
    num_wrong: int = 0
    complaints: list[str] = field(default_factory=list)
    """The first few of what went wrong."""

    async def window(self, sandbox: LocalSandbox, window: Window, seconds: float) -> None:
        started = time.perf_counter()

        async def caller() -> None:
            while time.perf_counter() - started < seconds:
                if window.hostile and self.rng.random() < self.share:
                    window.num_hostile += 1
                    await self._hostile(sandbox)
                else:
                    await self._innocent(sandbox)
                    window.num_innocent += 1

        await asyncio.gather(*(caller() for _ in range(CONCURRENCY)))
        window.duration_s = time.perf_counter() - started
        self.windows.append(window)

    async def _innocent(self, sandbox: LocalSandbox) -> None:
        program = innocent(self.rng)
        result = await sandbox.call(program.source, program.function, program.inputs, limits=LIMITS)
        self._count(INNOCENT, result.run.result_class, result.run.reason)
        if [output.value for output in result.outputs] != program.expected:
            self.num_wrong += 1
            self._complain(f"{program.function}: {result.run.result_class}, {result.run.reason}, {result.outputs}")

    async def _hostile(self, sandbox: LocalSandbox) -> None:
        kind = self.rng.choice(sorted(HOSTILE))
        result = await sandbox.call(HOSTILE[kind], "f", [[1]], limits=HOSTILE_LIMITS)
        self._count(kind, result.run.result_class, result.run.reason)

    def _count(self, kind: str, result_class: ResultClass, reason: str) -> None:
        self.classes.setdefault(kind, Counter())[result_class] += 1
        if result_class is ResultClass.INFRASTRUCTURE_ERROR:
            self._complain(f"{kind}: {reason}")

    def _complain(self, sentence: str) -> None:
        if len(self.complaints) < 20:
            self.complaints.append(sentence[:500])

    @property
    def num_infrastructure_errors(self) -> int:
        return sum(counted[ResultClass.INFRASTRUCTURE_ERROR] for counted in self.classes.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--hostile", type=float, default=0.05, help="share of hostile programs in every second window")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/soak"), help="folder for soak.json and the picture")
    arguments = parser.parse_args()
    found = soak(arguments.minutes, arguments.hostile, arguments.seed, arguments.out)
    print(json.dumps({name: value for name, value in found.items() if name != "windows"}, indent=2))
    sys.exit(1 if found["failures"] else 0)


def soak(minutes: float, hostile: float, seed: int, out: Path) -> dict[str, Any]:
    """What soak.json has."""
    out.mkdir(parents=True, exist_ok=True)
    done = Soak(hostile, random.Random(seed))
    with tempfile.TemporaryDirectory(prefix="posttrain-soak-") as folder:
        held = _with_temporary_files_in(Path(folder), done, 60 * minutes)
    left = held["closed"].more_than(held["before"])
    left["resident_mib"] = held["end"].more_than(held["warm"])["resident_mib"]  # what was imported stays, of course
    without, with_hostile = (_rates(done.windows, is_hostile) for is_hostile in (False, True))
    found = {
        "minutes": minutes,
        "hostile_share": hostile,
        "seed": seed,
        "tier": LocalSandbox().tier,
        "innocent_per_minute": {"without": statistics.median(without), "with_hostile": statistics.median(with_hostile)},
        "innocent_with_hostile_vs_without": round(statistics.median(with_hostile) / statistics.median(without), 3),
        "num_innocent": sum(window.num_innocent for window in done.windows),
        "num_hostile": sum(window.num_hostile for window in done.windows),
        "num_wrong": done.num_wrong,
        "num_infrastructure_errors": done.num_infrastructure_errors,
        "result_classes": done.classes,
        "held": {name: asdict(one) for name, one in held.items()},
        "left": left,
        "complaints": done.complaints,
        "failures": failures(done.num_wrong, done.num_infrastructure_errors, left),
        "windows": [{**asdict(window), "innocent_per_minute": window.per_minute} for window in done.windows],
    }
    (out / "soak.json").write_text(json.dumps(found, indent=2), encoding="utf-8")
    draw(done.windows, hostile, out)
    return found


def _with_temporary_files_in(folder: Path, done: Soak, seconds: float) -> dict[str, Census]:
    """A folder of our own, since other programs use the common one too."""
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"], tempfile.tempdir = str(folder), None
    try:
        return asyncio.run(_run(done, seconds, folder))
    finally:
        tempfile.tempdir = None
        if before is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = before


async def _run(done: Soak, seconds: float, folder: Path) -> dict[str, Census]:
    """What was held, by moment."""
    sandbox = LocalSandbox(concurrency=CONCURRENCY)
    assert sandbox.tier  # finds out now, not in the first window
    held = {"before": census(folder)}
    try:
        await Soak(0.5, random.Random(0)).window(sandbox, Window(True, 0.0), MIN_WINDOW_S)
        held["warm"] = census(folder)
        started = time.perf_counter()
        window_s = min(max(seconds / NUM_WINDOWS, MIN_WINDOW_S), MAX_WINDOW_S)
        for number in range(max(2, round(seconds / window_s))):
            elapsed_s = time.perf_counter() - started
            is_hostile = (number + 1) // 2 % 2 == 1  # so that neither always comes after the other
            await done.window(sandbox, Window(is_hostile, elapsed_s), window_s)
        held["end"] = census(folder)
    finally:
        await sandbox.close()
    held["closed"] = census(folder)
    return held


def failures(num_wrong: int, num_infrastructure_errors: int, left: Mapping[str, float]) -> list[str]:
    """Sentences; none where all is well."""
    found = []
    if num_wrong:
        found.append(f"{num_wrong} innocent programs did not give the right answers")
    if num_infrastructure_errors:
        found.append(f"{num_infrastructure_errors} executions ended by a fault of ours")
    for name, number in left.items():
        if number > (MAX_GROWTH_MIB if name == "resident_mib" else 0):
            found.append(f"{number:g} more {name} than before")
    return found


def draw(windows: Sequence[Window], share: float, out: Path) -> None:
    """`soak.svg`, and `soak.png` where there is a Chromium."""
    series = [
        Series(
            name, tuple((window.started_s / 60, window.per_minute) for window in windows if window.hostile == kind), c
        )
        for c, (kind, name) in enumerate(((False, "none hostile"), (True, f"{share:.0%} hostile")))
    ]
    chart = line_chart("Innocent executions a minute", series, from_zero=True)
    assert chart is not None
    names = "".join(
        f'<text class="c{color}" x="{46 + 190 * color}" y="-6">{line.name}, median {_median(line):,.0f}</text>'
        for color, line in enumerate(series)
    )
    inner = str(chart.svg).partition(">")[2].removesuffix("</svg>")
    (out / "soak.svg").write_text(_SVG.format(names=names, inner=inner), encoding="utf-8")
    screenshot(out / "soak.svg", out / "soak.png", 960, 520)


def _rates(windows: Sequence[Window], hostile: bool) -> list[float]:
    return [window.per_minute for window in windows if window.hostile == hostile]


def _median(line: Series) -> float:
    return statistics.median(value for _, value in line.points)


_SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="-10 -40 480 260" width="960" height="520">
<style>
svg {{ background: #ffffff; }}
text {{ font: 11px sans-serif; fill: #5d6875; }} text.title {{ font-size: 13px; font-weight: 600; fill: #1b2027; }}
text.c0 {{ fill: #2166c4; }} text.c1 {{ fill: #d1541a; }}
.grid {{ stroke: #e3e6ea; }} .line, .raw {{ fill: none; stroke-width: 2; }} .raw {{ stroke-width: 1; opacity: .35; }}
.hidden {{ opacity: 0; }} polyline.c0 {{ stroke: #2166c4; }} polyline.c1 {{ stroke: #d1541a; }}
circle.c0 {{ fill: #2166c4; }} circle.c1 {{ fill: #d1541a; }}
</style>
<rect x="-10" y="-40" width="480" height="260" fill="#ffffff"/>
<text class="title" x="46" y="-22">Innocent executions a minute, by minute of the soak</text>{names}
{inner}
</svg>
"""


if __name__ == "__main__":
    main()
