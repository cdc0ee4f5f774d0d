"""The library in its plainest setting against the whole idea in one file: the same weights, bit for bit."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from examples import one_file
from safetensors.torch import load_file
from torch import Tensor

from posttrain.core.protocols import StageSpec
from posttrain.core.types import FloatArray, Limits, Sample, Task
from posttrain.domains.function import FunctionDomain
from posttrain.gate.evaluate import EvaluationOptions
from posttrain.learn.trainer import Trainer
from posttrain.models.catalog import resolve
from posttrain.observe.progress import progress
from posttrain.run.config import CheckpointConfig, DomainConfig, EngineConfig, LearnerConfig, RunConfig
from posttrain.run.rl_stage import RlStage
from posttrain.run.train import start_run

MODEL = "seedling-random"
SEED = 5
WEIGHTS = "model.safetensors"
PLAINEST: dict[str, Any] = {"row_tokens": 1, "micro_batch_tokens": 1}
"""Of the learner: a row for each sample, nothing shared, and a pass for each row."""


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
        learner=LearnerConfig(processes=0, dtype="float32", options=PLAINEST),
        checkpoints=CheckpointConfig(every_steps=0),
    )
    with progress(io.StringIO()) as observer:
        start_run(config, run, observer, {domain.name: domain})
    return load_file(run / "model" / WEIGHTS)


def assert_same_training(domain: FunctionDomain, options: one_file.Options, run: Path) -> None:
    after = train_with_the_library(domain, options, run)
    assert_same(after, one_file.train(resolve(MODEL), domain, options))


def assert_same(after: dict[str, Tensor], model: Any) -> None:
    """`after`, the library's weights, are those of the file's `model`; and all of them have been trained."""
    before = load_file(resolve(MODEL) / WEIGHTS)
    expected = dict(model.named_parameters())
    assert expected.keys() == after.keys() == before.keys()
    assert not any(torch.equal(after[name], before[name]) for name in after), "a tensor was not trained"
    assert [name for name in after if not torch.equal(after[name], expected[name])] == []


def share_of_e(task: Task, reply: str) -> float:
    """Differs between almost all replies."""
    return reply.count("e") / max(1, len(reply))


def test_every_reply_teaches_and_every_gradient_is_shortened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_file, "MAX_GRAD_NORM", 1e-3)
    rows = [(f"Write the letter {letter} {count} times.", "") for letter in "aeiou" for count in range(10)]
    domain = FunctionDomain(rows, share_of_e, name="letters", limits=Limits(max_new_tokens=8))
    options = one_file.Options(steps=3, groups_per_step=3, group_size=3, learning_rate=1e-3, seed=SEED)
    assert_same_training(domain, options, tmp_path / "run")


def test_groups_without_signal_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = one_file.Options(steps=3, groups_per_step=4, group_size=3, seed=SEED)
    assert_same_training(one_file.make_domain(), options, tmp_path / "run")
    with_signal = [int(count) for count in re.findall(r"(\d+) replies with signal", capsys.readouterr().out)]
    assert len(with_signal) == options.steps
    assert 0 < sum(with_signal) < options.steps * options.groups_per_step * options.group_size


def test_stale_replies_are_clipped_and_capped_alike(tmp_path: Path) -> None:
    """Ratios around all bounds, which no run without staleness meets."""
    draw = np.random.default_rng(SEED)
    replies, samples = [], []
    model, optimizer = one_file.load(resolve(MODEL), learning_rate=1e-3)
    for number in range(16):
        prompt, tokens = draw.integers(0, 1000, 5).tolist(), draw.integers(0, 1000, 16 + number % 4).tolist()
        behavior = draw.uniform(-8.2, -6.2, len(tokens)).astype(np.float32)  # random weights say about -7.2
        advantage = float(draw.normal())
        replies.append(one_file.Reply(prompt, tokens, torch.from_numpy(behavior), advantage=advantage))
        samples.append(sample_of(f"reply-{number}", prompt, tokens, behavior, advantage))
    trainer = Trainer(resolve(MODEL), dtype="float32", **PLAINEST)
    trainer.begin_stage(StageSpec([{"name": "clipped_policy_gradient"}], {"learning_rate": 1e-3}, total_steps=1))
    metrics = trainer.step(samples)
    assert metrics.values["clipped_share"] > 0.1
    assert metrics.values["capped_share"] > 0.1
    trainer.export(tmp_path)
    assert one_file.learn(model, optimizer, replies) == metrics.grad_norm
    assert_same(load_file(tmp_path / WEIGHTS), model)


def sample_of(
    name: str, prompt: list[int], tokens: list[int], behavior_logprobs: FloatArray, advantage: float
) -> Sample:
    length = len(prompt) + len(tokens)
    sampled = np.arange(length) >= len(prompt)
    logprobs = np.zeros(length, np.float32)
    logprobs[sampled] = behavior_logprobs
    return Sample(
        trajectory_id=name,
        segment=0,
        group_id=name,
        domain="stale",
        tokens=np.array([*prompt, *tokens], np.int32),
        trainable=sampled,
        behavior_logprobs=logprobs,
        advantages=np.where(sampled, np.float32(advantage), np.float32(0.0)),
        loss_weights=np.ones(length, np.float32),
        versions=np.where(sampled, 0, -1).astype(np.int32),
    )


def test_the_example_runs_from_the_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [(f"Count to {number}.", number) for number in range(10)]
    short = FunctionDomain(rows, one_file.reward, name="short", limits=Limits(max_new_tokens=1))
    monkeypatch.setattr(one_file, "make_domain", lambda: short)
    monkeypatch.setattr("sys.argv", ["one_file.py", "--model", MODEL, "--steps", "1"])
    one_file.main()
    assert "step 1: reward 0." in capsys.readouterr().out
