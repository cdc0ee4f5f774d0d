"""The Python door: `train` with your own tasks and reward function, `evaluate` for any model on any domains.

Both build the same configuration that a TOML file would, and run the same code.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from posttrain.core.protocols import Domain, Observer
from posttrain.core.types import EvalReport, Json, Limits, Split, Task
from posttrain.domains.function import FunctionDomain, RewardFunction
from posttrain.gate.evaluate import EvaluationOptions, best_constants
from posttrain.gate.evaluate import evaluate as run_suite
from posttrain.gate.suite import build_suite
from posttrain.models.catalog import resolve
from posttrain.observe.progress import progress
from posttrain.run.config import DomainConfig, EngineConfig, LearnerConfig, RunConfig, SftStage
from posttrain.run.parts import start_rollouts
from posttrain.run.rl_stage import RlStage
from posttrain.run.train import TrainResult, resume_run, start_run

Result = TypeVar("Result")
TASKS = "tasks"
"""Name of the one domain that `train` makes."""


def train(
    model: str | Path,
    tasks: Iterable[tuple[str, Json] | Task],
    reward: RewardFunction,
    *,
    demonstrate: Callable[[Task], str | None] | None = None,
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

    `tasks` are pairs of a prompt and its answer, or `Task` objects with limits of their own; a share of them, chosen by
    content, is held out for evaluation. `reward` gives a score in [0, 1], a bool or a `Verdict` for a task and a reply,
    and is called in this process. With `sft_steps`, demonstrations are learned from first: those of `demonstrate`, or
    the answers themselves. Everything is recorded under `run`. Raises `UserError` for what you can mend.
    """
    rows = list(tasks)
    domain = FunctionDomain(
        tasks=rows,
        reward=reward,
        name=TASKS,
        demonstrate=demonstrate or _answer,
        limits=Limits(max_new_tokens=max_new_tokens),
    )
    levels = list(range(1, domain.levels + 1))
    stages: list[SftStage | RlStage] = []
    if sft_steps:
        stages.append(
            SftStage(
                kind="sft",
                max_steps=sft_steps,
                demonstrations=min(256, _num_tasks(domain, Split.TRAIN, len(rows))),
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
        domains={TASKS: DomainConfig(level=levels)},
        stages=stages,
        seed=seed,
        evaluation=EvaluationOptions(tasks=min(evaluation_tasks, _num_tasks(domain, Split.EVAL, len(rows)))),
        engine=engine or EngineConfig(),
        learner=learner or LearnerConfig(),
    )

    def work() -> TrainResult:
        with progress(sys.stderr) as observer:
            if resume:
                return resume_run(Path(run), observer, {TASKS: domain})
            return start_run(config, Path(run), observer, {TASKS: domain})

    return _outside_event_loops(work)


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
    options = EvaluationOptions(tasks=tasks, samples=samples)

    async def measure(observer: Observer, logs: Path) -> EvalReport:
        async with start_rollouts(
            engine or EngineConfig(), {"name": "local"}, resolve(str(model)), domains, observer, logs=logs
        ) as rollouts:
            suite = build_suite(domains, levels or dict.fromkeys(domains, 1), tasks=options.tasks, seed=options.seed)
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

    def work() -> EvalReport:
        with progress(sys.stderr) as observer, tempfile.TemporaryDirectory(prefix="posttrain-logs-") as logs:
            return asyncio.run(measure(observer, Path(logs)))

    return _outside_event_loops(work)


def _answer(task: Task) -> str | None:
    return str(task.hidden["answer"]) if "answer" in task.hidden else None


def _num_tasks(domain: FunctionDomain, split: Split, num_rows: int) -> int:
    """How many distinct tasks one can have of `split` while the levels take turns."""
    each = [
        len({domain.task(split, 0, index, level).task_id for index in range(num_rows)})
        for level in range(1, domain.levels + 1)
    ]
    return min(each) * len(each)


def _outside_event_loops(work: Callable[[], Result]) -> Result:
    """In a notebook this thread already runs an event loop: the work then gets a thread of its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(work).result()
