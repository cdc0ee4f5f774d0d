"""`posttrain replay RUN STEP`: learn from a stored step again, from the last checkpoint before it, and compare.

Nothing is sampled: the attempts come from the run's records, so a step that stopped a run with a number that is not
finite stops here again, at the same samples. Given the same machine and processes, what was recorded comes back bit
for bit. The run directory is only read.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from pydantic import TypeAdapter

from posttrain.core.errors import NonFiniteError, UserError
from posttrain.core.protocols import Advantage, Domain, Learner, Observer
from posttrain.core.registry import build
from posttrain.core.types import Group, Trajectory
from posttrain.run.config import RunConfig
from posttrain.run.credit import credit
from posttrain.run.load import parse
from posttrain.run.parts import make_domains, start_learner
from posttrain.run.record import RunState
from posttrain.run.rl import rl_spec
from posttrain.run.rl_stage import RlStage
from posttrain.run.steering import NEUTRAL, Steering
from posttrain.run.updates import update
from posttrain.store.checkpoints import Checkpoint, Checkpoints
from posttrain.store.metrics import read_metrics
from posttrain.store.position import Position
from posttrain.store.run_directory import RunDirectory
from posttrain.store.trajectories import TrajectoryStore
from posttrain.store.trajectory_row import TrajectoryRow

COMPARED = ("loss", "grad_norm", "learning_rate", "num_loss_tokens")


@dataclass(frozen=True)
class Replay:
    """What came of a step the second time."""

    stage: str
    step: int
    from_step: int
    """Of the checkpoint that it went on from; 0: the stage's begin."""
    values: Mapping[str, float]
    """Empty where the step failed."""
    recorded: Mapping[str, float]
    """Empty where the run stopped at this step."""
    error: str = ""
    """Why the step failed."""

    @property
    def same(self) -> bool | None:
        """Whether what was recorded came back exactly; None where there is nothing to compare."""
        if not (self.values and self.recorded):
            return None
        return all(self.values[name] == self.recorded[name] for name in COMPARED)


def replay(
    run: Path, step: int, stage_name: str | None, observer: Observer, domains: Mapping[str, Domain] | None = None
) -> Replay:
    """Step `step` of an RL stage, counted from 1; `domains` as in `start_run`.

    Raises `UserError` where the run has not what it takes.
    """
    directory = RunDirectory.open(run)
    config = parse(directory.config())
    number, stage = _stage(config, stage_name)
    stored = TrajectoryStore(directory.trajectories)
    if Position(number, step) not in stored.positions():
        raise UserError(f"{run} holds no attempts of step {step} of stage {stage.name}")
    whole = Checkpoints(directory.checkpoints, keep=1).whole()
    found = _checkpoint_before(whole, number, step)
    if found is None and number > 0:
        later = [
            p.step for p in stored.positions() if p.stage_index == number and _checkpoint_before(whole, number, p.step)
        ]
        raise UserError(
            f"{run} keeps no checkpoint before step {step} of stage {stage.name}: "
            + (f"replay a step from {min(later)} on, or run" if later else "run")
            + " with a larger checkpoints.keep"
        )
    made = dict(domains) if domains is not None else make_domains(config.domains)
    return asyncio.run(_replay(directory, config, number, stage, step, found, observer, made))


def _stage(config: RunConfig, name: str | None) -> tuple[int, RlStage]:
    stages = [(number, stage) for number, stage in enumerate(config.stages) if isinstance(stage, RlStage)]
    named = [(number, stage) for number, stage in stages if name is None or stage.name == name]
    if not named:
        raise UserError(
            f"the run has no RL stage {name or ''}".rstrip()
            + f" (it has: {', '.join(s.name for _, s in stages) or 'none'})"
        )
    return named[-1]


def _checkpoint_before(whole: Sequence[Checkpoint], number: int, step: int) -> tuple[Checkpoint, RunState] | None:
    """The last one from which the step can be reached by learning alone."""
    usable = []
    for checkpoint in whole:
        state = TypeAdapter(RunState).validate_python(checkpoint.state)
        at_begin = state.stage == number - 1 and state.finished
        inside = state.stage == number and state.step < step
        if at_begin or inside:
            usable.append((checkpoint, state))
    return usable[-1] if usable else None


async def _replay(
    directory: RunDirectory,
    config: RunConfig,
    number: int,
    stage: RlStage,
    step: int,
    found: tuple[Checkpoint, RunState] | None,
    observer: Observer,
    domains: Mapping[str, Domain],
) -> Replay:
    recorded = {r.step: r.values for r in read_metrics(directory.metrics).records if r.stage_index == number}
    stored = TrajectoryStore(directory.trajectories)
    inside = found is not None and found[1].stage == number
    first = found[1].step if found is not None and inside else 0
    advantage: Advantage = build("advantage", stage.advantage)
    steering = found[1].steering if found is not None and inside else NEUTRAL
    with tempfile.TemporaryDirectory(prefix="posttrain-replay-") as logs:
        observer.phase("loading the model")
        async with start_learner(config, logs=Path(logs)) as learner:
            if found is not None:
                await learner.load(found[0].path)
            if not inside:
                await learner.begin_stage(rl_spec(stage))
            values: Mapping[str, float] = {}
            for present in range(first + 1, step + 1):
                observer.phase(f"learning from step {present} again")
                groups = stored_groups(stored.read(Position(number, present)), domains)[: stage.groups_per_step]
                steering = Steering.of(recorded[present]) if present in recorded else steering
                try:
                    values = await _learn(groups, stage, advantage, steering, learner, config.seed, present)
                except NonFiniteError as error:
                    return Replay(stage.name, present, first, {}, recorded.get(present, {}), str(error))
                steering = steering.after(recorded.get(present, values), stage)
                if (
                    stage.kl is not None
                    and stage.kl.refresh_every_steps
                    and present % stage.kl.refresh_every_steps == 0
                ):
                    await learner.refresh_reference()
    return Replay(stage.name, step, first, values, recorded.get(step, {}))


async def _learn(
    groups: Sequence[Group],
    stage: RlStage,
    advantage: Advantage,
    steering: Steering,
    learner: Learner,
    seed: int,
    step: int,
) -> Mapping[str, float]:
    credited = await credit(groups, stage, advantage, learner, kl_in_reward=steering.kl_in_reward(stage))
    done = await update(credited.selection.samples, stage, steering, learner, seed=seed, step=step - 1)
    metrics = done.metrics
    plain = {name: float(getattr(metrics, name)) for name in COMPARED}
    return {**metrics.values, **plain}


def stored_groups(rows: Sequence[TrajectoryRow], domains: Mapping[str, Domain]) -> list[Group]:
    """The groups as they were learned from, in their order; each task is made again by its domain."""
    groups = []
    for group_id, of_group in groupby(rows, key=lambda row: row.group_id):
        siblings = list(of_group)
        first = siblings[0]
        task = domains[first.domain].task(first.split, first.seed, first.index, first.level)
        if task.task_id != first.task_id:
            raise UserError(f"domain {first.domain} now makes another task than the run's {first.task_id}")
        groups.append(
            Group(
                group_id,
                task,
                tuple(
                    Trajectory(
                        trajectory_id=row.trajectory_id,
                        task=task,
                        group_id=row.group_id,
                        sibling=row.sibling,
                        tokens=row.tokens,
                        sampled=row.sampled,
                        behavior_logprobs=row.behavior_logprobs,
                        versions=row.versions,
                        turns=row.turns,
                        reply=row.reply,
                        stop=row.stop,
                        verdict=row.verdict,
                        reward=row.reward,
                        failure=row.failure,
                        cost=row.cost,
                        detections=row.detections,
                        held_out=row.held_out,
                        quarantine=row.quarantine,
                    )
                    for row in siblings
                ),
            )
        )
    return groups
