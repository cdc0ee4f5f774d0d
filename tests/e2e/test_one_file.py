"""The library in its plainest setting against the whole idea in one file: the same weights, bit for bit."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from examples import one_file
from safetensors.torch import load_file
from torch import Tensor

from posttrain.core.types import Limits, Task
from posttrain.domains.function import FunctionDomain
from posttrain.gate.evaluate import EvaluationOptions
from posttrain.models.catalog import resolve
from posttrain.observe.progress import progress
from posttrain.run.config import CheckpointConfig, DomainConfig, EngineConfig, LearnerConfig, RlStage, RunConfig
from posttrain.run.train import start_run

MODEL = "seedling-random"
SEED = 5
WEIGHTS = "model.safetensors"


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """How many cores happen to be free must not change a sum."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def train_with_the_library(domain: FunctionDomain, options: one_file.Options, run: Path) -> dict[str, Tensor]:
    """Synchronous, in this process, float32, transformers' own forward pass, one sample a row and a row a pass."""
    stage = RlStage(
        kind="rl",
        steps=options.steps,
        groups_per_step=options.groups_per_step,
        group_size=options.group_size,
        max_staleness=0,
        optimizer={"learning_rate": options.learning_rate, "max_grad_norm": one_file.MAX_GRAD_NORM},
        evaluate=False,
    )
    config = RunConfig(
        model=MODEL,
        domains={domain.name: DomainConfig()},
        stages=[stage],
        seed=options.seed,
        evaluation=EvaluationOptions(tasks=1, samples=1),
        evaluate_base=False,
        engine=EngineConfig(name="reference", processes=0),
        learner=LearnerConfig(processes=0, dtype="float32", options={"row_tokens": 1, "micro_batch_tokens": 1}),
        checkpoints=CheckpointConfig(every_steps=0),
    )
    with progress(io.StringIO()) as observer:
        start_run(config, run, observer, {domain.name: domain})
    return load_file(run / "model" / WEIGHTS)


def assert_same_training(domain: FunctionDomain, options: one_file.Options, run: Path) -> None:
    before = load_file(resolve(MODEL) / WEIGHTS)
    after = train_with_the_library(domain, options, run)
    expected = dict(one_file.train(resolve(MODEL), domain, options).named_parameters())
    assert expected.keys() == after.keys() == before.keys()
    assert not any(torch.equal(after[name], before[name]) for name in after), "a tensor was not trained"
    different = [name for name in after if not torch.equal(after[name], expected[name])]
    assert not different


def share_of_e(task: Task, reply: str) -> float:
    """Differs between almost all replies."""
    return reply.count("e") / max(1, len(reply))


def test_every_reply_teaches_and_every_gradient_is_clipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_file, "MAX_GRAD_NORM", 1e-3)
    rows = [(f"Write the letter {letter} {count} times.", "") for letter in "aeiou" for count in range(10)]
    domain = FunctionDomain(rows, share_of_e, name="letters", limits=Limits(max_new_tokens=8))
    options = one_file.Options(steps=3, groups_per_step=3, group_size=3, learning_rate=1e-3, seed=SEED)
    assert_same_training(domain, options, tmp_path / "run")


def test_groups_without_signal_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = one_file.Options(steps=3, groups_per_step=4, group_size=4, seed=SEED)
    assert_same_training(one_file.make_domain(), options, tmp_path / "run")


def test_the_example_runs_from_the_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["one_file.py", "--model", MODEL, "--steps", "1"])
    one_file.main()
    assert "step 1: reward 0." in capsys.readouterr().out
