"""L21, the trainer's own state: k steps, save, load elsewhere, N − k steps equals N steps, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.learn.parts import KL_PENALTY, POLICY_GRADIENT, replace, some_samples, write_tiny_model

from posttrain.core.protocols import StageSpec
from posttrain.core.types import Sample
from posttrain.learn.trainer import Trainer

torch.set_num_threads(1)

NUM_STEPS = 5
SPEC = StageSpec(
    [POLICY_GRADIENT, KL_PENALTY],
    {"learning_rate": 1e-2, "warmup_steps": 2, "schedule": "cosine", "weight_decay": 0.1},
    total_steps=NUM_STEPS,
    keep_reference=True,
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny"))


def annotated(trainer: Trainer, step: int) -> list[Sample]:
    samples = some_samples()[step:] if step != 2 else []  # an empty step among them
    rows = trainer.logprobs(samples, reference=True)
    return [replace(s, reference_logprobs=row) for s, row in zip(samples, rows, strict=True)]


def run(trainer: Trainer, steps: range) -> list[tuple[object, ...]]:
    seen: list[tuple[object, ...]] = []
    for step in steps:
        metrics = trainer.step(annotated(trainer, step))
        seen.append((metrics.loss, metrics.grad_norm, metrics.learning_rate, metrics.values))
    return seen


def state(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: flat.clone() for name, flat in trainer._memory.vectors().items()} | {
        "weights": trainer._memory.weights.clone()
    }


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("k", range(NUM_STEPS + 1))
def test_resumed_run_equals_the_run_that_was_not_interrupted(model: Path, tmp_path: Path, k: int, dtype: str) -> None:
    whole = Trainer(model, dtype=dtype)
    whole.begin_stage(SPEC)
    first = run(whole, range(k))
    whole.save(tmp_path / "at_k")
    expected = run(whole, range(k, NUM_STEPS))

    resumed = Trainer(model, dtype=dtype)
    resumed.load(tmp_path / "at_k")
    assert run(resumed, range(k, NUM_STEPS)) == expected
    assert first == [] or first != expected
    for name, flat in state(whole).items():
        assert torch.equal(state(resumed)[name], flat), name


def test_full_precision_goes_on_into_the_next_stage(model: Path, tmp_path: Path) -> None:
    """Steps too small for bfloat16 to show must not be lost between two stages, nor by a resume between them."""
    tiny = StageSpec([POLICY_GRADIENT], {"learning_rate": 1e-5}, total_steps=3)
    trainer = Trainer(model, dtype="bfloat16")
    start = trainer._memory.state.master.clone()
    trainer.begin_stage(tiny)
    trainer.step(some_samples())
    moved = trainer._memory.state.master.clone()
    assert not torch.equal(moved, start)
    trainer.save(tmp_path / "between")
    trainer.begin_stage(tiny)
    resumed = Trainer(model, dtype="bfloat16")
    resumed.load(tmp_path / "between")
    resumed.begin_stage(tiny)
    for each in (trainer, resumed):
        assert torch.equal(each._memory.state.master, moved)
        assert not each._memory.state.first_moment.any()
