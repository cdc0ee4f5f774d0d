"""Rejection sampling: the policy's own best verified attempts become its demonstrations.

Attempts are sampled before the stage's first step and kept in the run directory, so that a resumed stage learns from
the same ids without sampling again (laws L11, L21). What is kept is all attempts; the choice among them is a pure
function. It trains nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from posttrain.core.errors import StoreError, UserError
from posttrain.core.seeding import stable_hash
from posttrain.core.types import Sample, StopReason, Task, VerdictStatus
from posttrain.gate.suite import check_disjoint
from posttrain.learn.samples import demonstration_sample
from posttrain.rollout.wave import GroupPlan
from posttrain.run.config import SftStage
from posttrain.run.parts import Parts
from posttrain.run.rows import Rows
from posttrain.store.position import Position
from posttrain.store.trajectories import TrajectoryStore
from posttrain.store.trajectory_row import TrajectoryRow

TASKS_PER_WAVE = 64
"""Sampled together and kept as one file."""


async def self_rows(
    stage: SftStage,
    tasks: Mapping[str, Sequence[Task]],
    parts: Parts,
    store: TrajectoryStore,
    *,
    stage_index: int,
    held_out: int,
    resumed: bool,
) -> Rows:
    """Rows of the tasks that the policy solves; the first `held_out` tasks of each domain are for validation.

    The engine must hold the policy as the stage begins, unless `resumed`: then what was sampled is read.
    Raises `UserError` where nothing was solved, `StoreError` where a resumed stage does not find its attempts.
    """
    plans = {name: _plans(stage, parts.config.seed, name, of_domain) for name, of_domain in tasks.items()}
    check_disjoint((task for of_domain in tasks.values() for task in of_domain), parts.suite)
    attempts = await _attempts(stage, list(itertools.chain(*plans.values())), parts, store, stage_index, resumed)
    rows = Rows([], [])
    unsolved = no_verdict = 0
    for name, of_domain in plans.items():
        best = [best_verified(attempts[plan.group_id], parts.config.seed) for plan in of_domain]
        samples = [_sample(attempt, stage.prompt_loss_weight) if attempt else None for attempt in best]
        training = [sample for sample in samples[held_out:] if sample is not None]
        validation = [sample for sample in samples[:held_out] if sample is not None]
        unsolved += sum(sample is None for sample in samples)
        no_verdict += sum(bool(attempt.why_unscored) for plan in of_domain for attempt in attempts[plan.group_id])
        solved = len(training) + len(validation)
        note = f"{stage.name} solved {solved} of {len(samples)} tasks of {name} in {stage.attempts} attempts each"
        rows += Rows(training, validation, {f"solved/{name}": solved / len(samples)}, [note])
    if not rows.training:
        raise UserError(
            f"stage {stage.name} has nothing of its own to learn from: not one of {sum(map(len, plans.values()))} "
            f"tasks was solved and finished in {stage.attempts} attempts ({no_verdict} attempts got no verdict). Raise "
            'attempts, lower the level, or learn from source = "domains" first'
        )
    return rows + Rows([], [], {"unsolved_tasks": float(unsolved), "self_no_verdict": float(no_verdict)})


def best_verified(attempts: Sequence[TrajectoryRow], seed: int) -> TrajectoryRow | None:
    """The correct attempt of the highest score, then of the fewest sampled tokens; ties are keyed by the seed.

    An attempt that ran into a limit is none: it has no stop token to learn, and none is invented (law L13).
    """
    verified = [
        (-attempt.verdict.score, int(np.count_nonzero(attempt.sampled)), _lot(seed, attempt), attempt)
        for attempt in attempts
        if attempt.verdict is not None and attempt.status is VerdictStatus.CORRECT and attempt.stop is StopReason.STOP
    ]
    return min(verified, key=lambda ranked: ranked[:3])[-1] if verified else None


def _lot(seed: int, attempt: TrajectoryRow) -> int:
    return stable_hash("best attempt", seed, attempt.trajectory_id)


def _plans(stage: SftStage, seed: int, name: str, tasks: Sequence[Task]) -> list[GroupPlan]:
    return [
        GroupPlan(
            group_id=f"{stage.name}-self-{name}-{number:05d}",
            task=task,
            temperatures=(1.0,) * stage.attempts,
            seed_parts=("demonstrations", seed, stage.name, task.task_id),
        )
        for number, task in enumerate(tasks)
    ]


async def _attempts(
    stage: SftStage,
    plans: Sequence[GroupPlan],
    parts: Parts,
    store: TrajectoryStore,
    stage_index: int,
    resumed: bool,
) -> dict[str, list[TrajectoryRow]]:
    """By group; waves that an earlier process has finished are read, the others sampled and written."""
    found: dict[str, list[TrajectoryRow]] = {plan.group_id: [] for plan in plans}
    known = set(store.positions())
    parts.observer.phase("sampling demonstrations", total=len(plans) * stage.attempts)
    for wave, start in enumerate(range(0, len(plans), TASKS_PER_WAVE), start=1):
        chosen = plans[start : start + TASKS_PER_WAVE]
        position = Position(stage_index, wave)
        if position in known:
            parts.observer.advance(len(chosen) * stage.attempts)
        elif resumed:
            raise StoreError(
                f"the attempts that stage {stage.name} began to learn from are gone from the run directory "
                f"(demonstrations/{position}.parquet): the weights that sampled them are no longer there"
            )
        else:
            groups = await parts.rollouts.roller.roll(chosen, on_done=parts.observer.advance)
            store.write(position, [attempt for group in groups for attempt in group.trajectories])
        for row in store.read(position):
            found[row.group_id].append(row)
    return found


def _sample(attempt: TrajectoryRow, prompt_loss_weight: float) -> Sample:
    name = f"demonstration/{attempt.task_id}"
    return demonstration_sample(name, attempt.domain, attempt.tokens, attempt.sampled, prompt_loss_weight)
