"""A run as it would lie on disk, made up: SFT, then RL over three domains, evaluated before, between and after."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from posttrain.core.types import (
    Boundary,
    Cost,
    DomainScore,
    EvalReport,
    Failure,
    Message,
    Reward,
    Role,
    Split,
    StopReason,
    Task,
    Trajectory,
    Verdict,
)
from posttrain.store.metrics import MetricsLog
from posttrain.store.position import Position
from posttrain.store.reports import write_report
from posttrain.store.run_directory import Manifest, RunDirectory
from posttrain.store.trajectories import TrajectoryStore
from posttrain.store.weight_changes import WeightChange, WeightLog

DOMAINS = ("arithmetic", "ordering", "python_functions")
SCORES = {"base": (0.10, 0.04, 0.01), "sft": (0.31, 0.22, 0.18), "rl": (0.58, 0.47, 0.20)}
HOSTILE = '<script>alert("x")</script> & <b>{{ 7 * 7 }}</b>'

MakeRun = Callable[..., RunDirectory]


@pytest.fixture(autouse=True)
def quick_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here cuts the power, so these tests need not wait for the disk."""
    monkeypatch.setattr("os.fsync", lambda _: None)


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Builds a run; `stages` says how far it came ("sft", "rl"), `rl_steps` how long RL was."""

    def make(name: str = "demo", stages: tuple[str, ...] = ("sft", "rl"), rl_steps: int = 12) -> RunDirectory:
        config = {
            "model": "smollm2-135m",
            "seed": 3,
            "domains": {domain: {"level": 1} for domain in DOMAINS},
            "stages": [
                {"kind": "sft", "name": "sft", "max_steps": 40},
                {"kind": "rl", "name": "rl", "steps": rl_steps},
            ],
        }
        manifest = Manifest.now("smollm2-135m", 3, ["posttrain", "train", "configs/quickstart.toml"])
        run = RunDirectory.create(tmp_path / "runs" / name, manifest, config)
        for number, label in enumerate(("base", *stages)):
            write_report(run.evals, number, eval_report(label))
        log = MetricsLog(run.metrics)
        if "sft" in stages:
            for step in range(1, 31):
                log.append(Position(0, step), "sft", sft_values(step))
        if "rl" in stages:
            store = TrajectoryStore(run.trajectories)
            for step in range(1, rl_steps + 1):
                log.append(Position(1, step), "rl", rl_values(step, rl_steps))
                store.write(Position(1, step), rl_attempts(step))
            run.write_result({"wall_s": 754.0, "gain_rl": {"mean": 0.18, "ci95": [0.15, 0.21]}})
        return run

    return make


def eval_report(label: str) -> EvalReport:
    scores = {name: score(value) for name, value in zip(DOMAINS, SCORES[label], strict=True)}
    mean = score(sum(SCORES[label]) / len(DOMAINS), n=384, half=0.02)
    return EvalReport(label, "smollm2-135m", 0, "suite", scores, mean, (), 31.0)


def score(value: float, n: int = 128, half: float = 0.04) -> DomainScore:
    return DomainScore(
        pass_at_1=value,
        ci95=(max(0.0, value - half), value + half),
        n=n,
        samples=4,
        pass_at_k=min(1.0, 1.6 * value),
        greedy=value + 0.01,
        best_constant=0.05,
        distinct_answers=57,
        no_verdict=0,
        mean_tokens=24.5,
        truncated_share=0.02,
    )


def sft_values(step: int) -> dict[str, float]:
    values = {
        "loss": 2.2 * math.exp(-step / 8) + 0.4 + 0.02 * math.sin(step),
        "grad_norm": 1.3,
        "learning_rate": 1e-4 * min(1.0, step / 5),
        "num_loss_tokens": 900.0,
        "tokens_per_s": 1100.0,
    }
    return {**values, **({"validation_loss": 2.2 * math.exp(-step / 8) + 0.45} if step % 5 == 0 else {})}


def rl_values(step: int, steps: int) -> dict[str, float]:
    noise = random.Random(step)
    progress = 1 - math.exp(-2.5 * step / steps)
    rates = {
        domain: min(1.0, max(0.0, low + (high - low) * progress + noise.gauss(0, 0.04)))
        for domain, low, high in zip(DOMAINS, SCORES["sft"], SCORES["rl"], strict=True)
    }
    mean = sum(rates.values()) / len(rates)
    return {
        "reward": mean,
        "pass_rate": mean,
        **{f"pass/{domain}": rate for domain, rate in rates.items()},
        **{f"reward/{domain}": rate for domain, rate in rates.items()},
        "loss": noise.gauss(0, 0.01),
        "grad_norm": 0.4 + noise.random() / 10,
        "learning_rate": 2e-5,
        "num_loss_tokens": 3000.0,
        "mismatch": 0.008 + noise.random() / 500,
        "mismatch_max": 0.4 + noise.random() / 10,
        "kl": 0.02 * progress + noise.random() / 500,
        "clipped_share": 0.01,
        "zero_signal_share": 0.3 + 0.2 * progress,
        "no_verdict": 1.0 if step == 4 else 0.0,
        "truncated_share": 0.05,
        "distinct_answers": 60.0,
        "mean_tokens": 25.0,
        "tokens_per_s": 420.0 + noise.gauss(0, 10),
        "time/generate_s": 2.4 + noise.random(),
        "time/verify_s": 0.4,
        "time/learn_s": 1.9 + noise.random() / 2,
        "time/publish_s": 0.3,
        "time/step_s": 5.9 + noise.random(),
    }


def rl_attempts(step: int) -> list[Trajectory]:
    attempts = []
    for number, domain in enumerate(DOMAINS):
        prompt = (Message(Role.USER, f"{domain}: what is {step} + {number}?"),)
        task = Task(domain, prompt, {"answer": 0}, Split.TRAIN, seed=3, index=step, level=1 + number)
        verdicts = [Verdict.correct(answer="1"), Verdict.incorrect(f"expected 4 {HOSTILE}", answer=HOSTILE)]
        for sibling, verdict in enumerate(verdicts * 3):
            attempts.append(attempt(f"{step}/{domain}/{sibling}", task, sibling, verdict))
    if step == 4:
        lost = attempts.pop()
        failure = Failure(Boundary.SANDBOX, f"the sandbox ended {HOSTILE}")
        attempts.append(attempt(lost.trajectory_id, lost.task, lost.sibling, None, failure))
    return attempts


def attempt(name: str, task: Task, sibling: int, verdict: Verdict | None, failure: Failure | None = None) -> Trajectory:
    draw = np.random.default_rng(sibling)
    sampled = np.arange(32) >= 12
    return Trajectory(
        trajectory_id=name,
        task=task,
        group_id=name.rpartition("/")[0],
        sibling=sibling,
        tokens=draw.integers(0, 200, 32).astype(np.int32),
        sampled=sampled,
        behavior_logprobs=np.where(sampled, -draw.exponential(0.5, 32), 0).astype(np.float32),
        versions=np.where(sampled, 5, -1).astype(np.int32),
        turns=(),
        reply=f"The sum is 4.\n{HOSTILE}\nAnswer: 4",
        stop=StopReason.STOP,
        verdict=verdict,
        reward=Reward(verdict.score) if verdict is not None else None,
        failure=failure,
        cost=Cost(20, 1.0, 0.0),
    )


@pytest.fixture
def run_with_parts(make_run: Callable[..., RunDirectory]) -> RunDirectory:
    """A run whose arithmetic has a reward of two parts, the weight of one of them lowered behind step 13."""
    run = make_run("parts")
    log = MetricsLog(run.metrics)
    for step in range(13, 17):
        values = {
            "reward/arithmetic": 0.5,
            "reward/arithmetic/outcome": 0.4 + step / 100,
            "reward/arithmetic/format": 0.9,
            "reward_weight/arithmetic/outcome": 1.0,
            "reward_weight/arithmetic/format": 0.2 if step == 13 else 0.05,
        }
        log.append(Position(1, step), "rl", values)
    cause = f"reward_saturated/arithmetic/format was 1 {HOSTILE}"
    WeightLog(run.reward_weights).append([WeightChange(1, 13, "arithmetic", "format", 0.2, 0.05, cause)])
    return run
