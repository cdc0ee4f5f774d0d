"""The Python door: `train` with your own tasks and reward function, `evaluate` for any model on any domains.

Both build the same configuration that a TOML file would, and run the same code.
"""

from __future__ import annotations

import asyncio
import dataclasses
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from posttrain.core.protocols import Domain
from posttrain.core.types import EvalReport, Json, Limits, Split, Task, Verdict
from posttrain.domains.function import FunctionDomain
from posttrain.gate.evaluate import EvaluationOptions, best_constants
from posttrain.gate.evaluate import evaluate as run_suite
from posttrain.gate.suite import build_suite
from posttrain.models.catalog import resolve
from posttrain.observe.progress import progress
from posttrain.run.config import DomainConfig, EngineConfig, LearnerConfig, RlStage, RunConfig, SftStage
from posttrain.run.parts import start_rollouts
from posttrain.run.train import TrainResult, resume_run, start_run

TASKS = "tasks"
"""Name of the one domain that `train` makes."""

Reward = Callable[[Task, str], float | bool | Verdict]
"""A task and the policy's reply → a score in [0, 1], a bool, or a whole verdict."""


def train(
    model: str | Path,
    tasks: Iterable[tuple[str, Json] | Task],
    reward: Reward,
    *,
    demonstrate: Callable[[Task], str] | None = None,
    steps: int = 50,
    sft_steps: int = 0,
    groups_per_step: int = 8,
    group_size: int = 8,
    learning_rate: float = 1e-5,
    max_new_tokens: int = 64,
    evaluation_tasks: int = 32,
    seed: int = 0,
    run: str | Path = "runs/python",
    resume: bool = False,
    engine: EngineConfig | None = None,
    learner: LearnerConfig | None = None,
) -> TrainResult:
    """Train a model on your own tasks, with the loop that `posttrain train` runs.

    `tasks` are pairs of a prompt and its answer, or `Task` objects; a share of them, chosen by content, is held out for
    evaluation. `reward` is called in this process. With `sft_steps`, demonstrations are learned from first: those of
    `demonstrate`, or the answers themselves. Everything is recorded under `run`. Raises `UserError` for what you can
    mend.
    """
    rows = list(tasks)
    domain = FunctionDomain(
        tasks=rows,
        reward=reward,
        name=TASKS,
        demonstrate=demonstrate or (lambda task: str(task.hidden["answer"])),
        limits=Limits(max_new_tokens=max_new_tokens),
    )
    stages: list[SftStage | RlStage] = []
    if sft_steps:
        stages.append(
            SftStage(
                kind="sft",
                max_steps=sft_steps,
                demonstrations=min(256, _num_distinct(domain, Split.TRAIN, len(rows))),
                optimizer={"learning_rate": learning_rate},
            )
        )
    stages.append(
        RlStage(
            kind="rl",
            steps=steps,
            groups_per_step=groups_per_step,
            group_size=group_size,
            optimizer={"learning_rate": learning_rate},
        )
    )
    config = RunConfig(
        model=str(model),
        domains={TASKS: DomainConfig()},
        stages=stages,
        seed=seed,
        evaluation=EvaluationOptions(tasks=min(evaluation_tasks, _num_distinct(domain, Split.EVAL, len(rows)))),
        engine=engine or EngineConfig(),
        learner=learner or LearnerConfig(),
    )
    with progress(sys.stderr) as observer:
        domains: dict[str, Domain] = {TASKS: domain}
        if resume:
            return resume_run(Path(run), observer, domains)
        return start_run(config, Path(run), observer, domains)


def evaluate(
    model: str | Path,
    domains: Mapping[str, Domain],
    *,
    levels: Mapping[str, int] | None = None,
    tasks: int = 128,
    samples: int = 4,
    label: str = "evaluation",
    engine: EngineConfig | None = None,
) -> EvalReport:
    """Score a model on fixed held-out tasks of `domains`: pass@1 with intervals, greedy, best constant answer."""
    options = dataclasses.replace(EvaluationOptions(), tasks=tasks, samples=samples)
    with progress(sys.stderr) as observer, tempfile.TemporaryDirectory(prefix="posttrain-logs-") as logs:

        async def measure() -> EvalReport:
            folder = resolve(str(model))
            async with start_rollouts(
                engine or EngineConfig(), {"name": "local"}, folder, domains, observer, logs=Path(logs)
            ) as rollouts:
                suite = build_suite(
                    domains, levels or dict.fromkeys(domains, 1), tasks=options.tasks, seed=options.seed
                )
                constants = await best_constants(domains, suite, rollouts.sandbox)
                observer.phase("evaluating", total=len(suite) * (options.samples + 1))
                report, _ = await run_suite(
                    rollouts.roller,
                    suite,
                    options,
                    constants,
                    label=label,
                    model=str(model),
                    version=0,
                    on_done=observer.advance,
                )
                return report

        return asyncio.run(measure())


def _num_distinct(domain: FunctionDomain, split: Split, num_rows: int) -> int:
    return len({domain.task(split, 0, index, 1).task_id for index in range(num_rows)})
