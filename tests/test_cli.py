"""The command line as a user meets it: exit codes, JSON alone on standard output, sentences instead of tracebacks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFIG = """
model = "seedling-random"
[domains.arithmetic]
[evaluation]
tasks = 2
samples = 1
[engine]
processes = 0
[learner]
processes = 0
[[stages]]
kind = "rl"
steps = 1
groups_per_step = 1
group_size = 2
"""


def posttrain(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "posttrain", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={**os.environ, "NO_COLOR": "1", "OMP_NUM_THREADS": "1"},
    )


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(CONFIG)
    return path


def test_help_imports_no_torch() -> None:
    program = (
        "import sys; from posttrain.cli import app; import typer.testing as t; "
        "r = t.CliRunner().invoke(app, ['--help']); assert r.exit_code == 0, r.output; "
        "assert 'train' in r.output; assert 'torch' not in sys.modules; assert 'transformers' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_run_from_the_command_line_leaves_json_alone_on_standard_output(config: Path, tmp_path: Path) -> None:
    trained = posttrain("train", config, "--json", cwd=tmp_path)
    assert trained.returncode == 0, trained.stderr
    result = json.loads(trained.stdout)
    assert result["steps"] == 1
    assert (tmp_path / result["run"] / "model" / "model.safetensors").exists()
    shown = json.loads(posttrain("show", "runs/tiny", "--json", cwd=tmp_path).stdout)
    assert set(shown["domains"]["arithmetic"]) == {"base", "rl"}
    assert set(shown["domains"]["arithmetic"]["rl"]) >= {"pass_at_1", "ci95", "n"}
    assert {"gain_rl", "wall_s", "model", "steps"} <= set(shown)
    page = json.loads(posttrain("report", "runs/tiny", "--json", cwd=tmp_path).stdout)
    assert "<html" in (tmp_path / page["report"]).read_text()
    again = posttrain("train", config, cwd=tmp_path)
    assert again.returncode == 2
    assert "--resume" in again.stderr


def test_dry_run_prints_the_plan_and_makes_nothing(config: Path, tmp_path: Path) -> None:
    planned = posttrain("train", config, "--set", "learner.lora.rank=4", "--dry-run", "--json", cwd=tmp_path)
    assert planned.returncode == 0, planned.stderr
    plan = json.loads(planned.stdout)
    assert plan["stages"][0]["completions"] == 2
    assert plan["learner"]["trains"] == "LoRA of rank 4"
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["train", "none.toml"], "there is no configuration file"),
        (["train", "tiny.toml", "--set", "stages.rl.stepz=3"], "did you mean 'steps'"),
        (["train", "tiny.toml", "--set", "model=smolm2-135m"], "smollm2-135m"),
        (["train", "tiny.toml", "--set", "domains.arithmetic.level=99"], "levels 1 to"),
        (["train", "tiny.toml", "--set", "stages.rl.loss.name=grpo"], "there is no loss 'grpo'"),
        (["train", "tiny.toml", "--set", "evaluation.tasks=100000000", "--dry-run"], "distinct evaluation tasks"),
        (["train"], "configuration file"),
        (["show", "runs/none"], "there is no run"),
        (["models", "get", "nothing-like-it"], "there is no model 'nothing-like-it'"),
        (["domains", "show", "arithmetics"], "did you mean 'arithmetic'"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    config: Path, tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    answer = posttrain(*arguments, cwd=tmp_path)
    assert answer.returncode == 2, answer.stderr
    assert sentence in answer.stderr
    assert "Traceback" not in answer.stderr
    assert answer.stdout == ""
