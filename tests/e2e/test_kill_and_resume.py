"""Law L21: k steps, kill −9, resume, N − k steps equal N steps, bit for bit, through the real command line."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

CONFIG = """
model = "seedling-random"
seed = 3
[domains.arithmetic]
[domains.words]
[evaluation]
tasks = 4
samples = 2
[engine]
processes = {processes}
[learner]
processes = {processes}
dtype = "float32"
[checkpoints]
every_steps = 2
[[stages]]
kind = "sft"
max_steps = 5
demonstrations = 16
demonstrations_per_step = 8
optimizer = {{ learning_rate = 3e-3 }}
plateau = {{ every_steps = 2, patience = 9, validation_demonstrations = 8 }}
[[stages]]
kind = "rl"
steps = 5
groups_per_step = 2
group_size = 4
optimizer = {{ learning_rate = 1e-3 }}
"""


def start(config: Path, run: Path, *, resume: bool) -> subprocess.Popen[bytes]:
    # A shell has what it starts in the background ignore interrupts, and that is inherited.
    heeding = ("env", "--default-signal=INT")
    command = [*heeding, sys.executable, "-m", "posttrain", "train", str(config), "--run", str(run)]
    return subprocess.Popen(
        [*command, "--resume"] if resume else command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )


def finish(config: Path, run: Path, *, resume: bool) -> None:
    process = start(config, run, resume=resume)
    _, errors = process.communicate()
    assert process.returncode == 0, errors.decode()


def progress(run: Path) -> int:
    """Something that grows while a run goes on: lines, reports and checkpoint files."""
    lines = run / "metrics.jsonl"
    count = lines.read_bytes().count(b"\n") if lines.exists() else 0
    return count + sum(1 for folder in ("evals", "checkpoints", "trajectories") for _ in (run / folder).rglob("*"))


def kill_after(config: Path, run: Path, amount: int, *, resume: bool) -> bool:
    """Kill −9 the driver once the run has grown by `amount`; False where it ended before."""
    process = start(config, run, resume=resume)
    assert process.stderr is not None
    process.stderr.close()
    begin = progress(run) if run.exists() else 0
    while process.poll() is None:
        if run.exists() and progress(run) - begin >= amount:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            return True
        time.sleep(0.002)
    return False


def fingerprint(run: Path) -> str:
    return hashlib.sha256((run / "model" / "model.safetensors").read_bytes()).hexdigest()


def check(tmp_path: Path, kills: list[int], processes: int) -> None:
    config = tmp_path / "run.toml"
    config.write_text(CONFIG.format(processes=processes))
    finish(config, tmp_path / "whole", resume=False)
    killed = tmp_path / "killed"
    num_killed = 0
    for amount in kills:
        num_killed += kill_after(config, killed, amount, resume=(killed / "manifest.json").exists())
    finish(config, killed, resume=True)
    assert num_killed >= 1
    assert fingerprint(killed) == fingerprint(tmp_path / "whole")
    steps = [(killed / "metrics.jsonl").read_text(), (tmp_path / "whole" / "metrics.jsonl").read_text()]
    assert steps[0].count("\n") == steps[1].count("\n") == 10


def test_killed_and_resumed_run_ends_with_the_same_parameters(tmp_path: Path) -> None:
    check(tmp_path, kills=[6, 9], processes=0)


def test_an_interrupted_run_says_how_to_go_on_and_goes_on(tmp_path: Path) -> None:
    config = tmp_path / "run.toml"
    config.write_text(CONFIG.format(processes=1))
    process = start(config, tmp_path / "run", resume=False)
    while process.poll() is None and not (tmp_path / "run" / "metrics.jsonl").exists():
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130, errors.decode()
    assert f"posttrain train --resume --run {tmp_path / 'run'}" in errors.decode()
    assert "Traceback" not in errors.decode()
    finish(config, tmp_path / "run", resume=True)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [0, 2])
def test_a_run_killed_again_and_again_ends_with_the_same_parameters(tmp_path: Path, processes: int) -> None:
    check(tmp_path, kills=[1, 2, 3, 4, 5, 7, 8, 11], processes=processes)
