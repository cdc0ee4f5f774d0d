"""What a run leaves behind while it runs: metrics, trajectories, changes of weights, evaluation reports, checkpoints.

A checkpoint holds everything that the rest of the run depends on (law L21); what later steps had written before a
kill is cut off when the run is resumed. It reads nothing back for people: `observe/` does.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from posttrain.core.errors import StoreError
from posttrain.core.types import EvalReport, Group, Json
from posttrain.gate.statistics import Gain
from posttrain.run.config import RunConfig
from posttrain.run.health import RollBack
from posttrain.run.parts import Parts
from posttrain.run.steering import NEUTRAL, Steering
from posttrain.store.checkpoints import Checkpoints
from posttrain.store.files import read_json, write_json
from posttrain.store.metrics import MetricsLog, MetricsRecord, read_metrics
from posttrain.store.position import Position
from posttrain.store.reports import read_report, remove_reports_after, report_path, write_report
from posttrain.store.run_directory import RunDirectory
from posttrain.store.trajectories import TrajectoryStore
from posttrain.store.weight_changes import WeightChange, WeightLog


@dataclass(frozen=True)
class RunState:
    """Where a run stands: everything but the learner's own state. Plain data."""

    stage: int = 0
    steps: Mapping[str, int] = field(default_factory=dict)
    """Steps taken, by stage."""
    step: int = 0
    """Steps taken of the present stage."""
    finished: bool = False
    """The stage has taken its last step; its evaluation may be missing."""
    version: int = 0
    wall_s: float = 0.0
    mixture: Json = None
    plateau: Mapping[str, float | None] = field(default_factory=dict)
    steering: Steering = NEUTRAL
    roll_backs: tuple[RollBack, ...] = ()
    """Of the present stage."""
    good: bool = True
    """No rule that does more than warn had fired of late: a run may return here."""
    verifiers: Mapping[str, str] = field(default_factory=dict)
    """Versions of the domains' verifiers."""
    lifted: Mapping[str, int] = field(default_factory=dict)
    """Domains whose verifier was changed, and the present stage's step up to which pauses of theirs are void."""
    reference: Mapping[str, str | int] = field(default_factory=dict)
    """Version and fingerprint of the weights that are the RL stage's reference policy; empty where it keeps none."""


class Recorder:
    """The run's writer. The run directory's lock is held by its caller."""

    def __init__(self, directory: RunDirectory, config: RunConfig, parts: Parts) -> None:
        self.directory = directory
        self._config = config
        self._parts = parts
        self._started = time.monotonic()
        self._metrics = MetricsLog(directory.metrics)
        self._trajectories = TrajectoryStore(directory.trajectories)
        self._checkpoints = Checkpoints(
            directory.checkpoints,
            keep=config.checkpoints.keep,
            worth_keeping=lambda state: bool(state.get("good", True)),
        )
        latest = self._checkpoints.latest()
        self.restored: Path | None = latest.path if latest is not None else None
        """The checkpoint to load the learner from; None at a run's beginning."""
        self.state = TypeAdapter(RunState).validate_python(latest.state) if latest is not None else RunState()
        self._earlier_s = self.state.wall_s
        self._metrics.truncate_after(Position(self.state.stage, self.state.step))
        self._trajectories.truncate_after(Position(self.state.stage, self.state.step))
        self._weights = WeightLog(directory.reward_weights)
        self._weights.truncate_after(Position(self.state.stage, self.state.step))

    @property
    def demonstrations(self) -> Path:
        """Where an SFT stage keeps what it learns from: a resumed run must find the same."""
        return self.directory.demonstrations

    @property
    def logs(self) -> Path:
        return self.directory.logs

    @property
    def wall_s(self) -> float:
        """Seconds that the run has taken, over all its resumptions."""
        return self._earlier_s + time.monotonic() - self._started

    @property
    def has_checkpoint(self) -> bool:
        return self._checkpoints.latest() is not None

    def step(self, step: int, values: Mapping[str, float]) -> MetricsRecord:
        """Record the present stage's step number `step`, counted from 1."""
        return self._metrics.append(Position(self.state.stage, step), self._stage_name, values)

    def weights(self, step: int, changes: Sequence[WeightChange]) -> None:
        """Record what `changes` says of the weights of rewards behind the present stage's step `step`."""
        assert all(change.position == Position(self.state.stage, step) for change in changes), changes
        self._weights.append(changes)

    def trajectories(self, step: int, groups: Sequence[Group]) -> None:
        self._trajectories.write(Position(self.state.stage, step), [t for group in groups for t in group.trajectories])

    def report(self, number: int, step: int, report: EvalReport, groups: Sequence[Group]) -> None:
        """Keep an evaluation: its attempts first, so that a report never stands without them.

        `step` is 0, or the step of a stage that goes on after it.
        """
        attempts = TrajectoryStore(self.directory.evals)
        attempts.write(Position(number, step), [t for group in groups for t in group.trajectories])
        write_report(self.directory.evals, number, report)

    def known_report(self, number: int, label: str) -> EvalReport | None:
        path = report_path(self.directory.evals, number, label)
        return read_report(path) if path.is_file() else None

    def constants(self, suite_id: str, constants: Mapping[str, float]) -> None:
        """Keep the best constant answers' scores: they depend on the suite alone."""
        write_json(self._constants_path, {"suite_id": suite_id, "best_constant": dict(constants)})

    def known_constants(self, suite_id: str) -> dict[str, float] | None:
        if not self._constants_path.is_file():
            return None
        known = read_json(self._constants_path)
        if known["suite_id"] != suite_id:
            return None
        return {name: float("nan") if score is None else score for name, score in known["best_constant"].items()}

    def begin_stage(self, stage: int) -> None:
        self.state = dataclasses.replace(
            self.state,
            stage=stage,
            step=0,
            finished=False,
            mixture=None,
            plateau={},
            steering=NEUTRAL,
            roll_backs=(),
            good=True,
            lifted={},
            reference={},
        )

    def reference(self, version: int, fingerprint: str) -> None:
        """The weights of `version` became the reference policy."""
        self.state = dataclasses.replace(self.state, reference={"version": version, "fingerprint": fingerprint})

    def verifiers(self, versions: Mapping[str, str]) -> list[str]:
        """The domains' verifiers as they are now. Pauses of those that have changed are void; returns their names."""
        known = self.state.verifiers
        changed = [name for name, version in versions.items() if known.get(name, version) != version]
        lifted = {**self.state.lifted, **dict.fromkeys(changed, self.state.step)}
        self.state = dataclasses.replace(self.state, verifiers=dict(versions), lifted=lifted)
        return changed

    def checkpoint_due(self, step: int, last: int) -> bool:
        every = self._config.checkpoints.every_steps
        return every > 0 and step % every == 0 and step < last

    async def checkpoint(
        self,
        step: int,
        *,
        finished: bool = False,
        mixture: Json = None,
        plateau: Mapping[str, float | None] | None = None,
        steering: Steering = NEUTRAL,
        good: bool = True,
    ) -> None:
        """Write a whole checkpoint after `step` steps of the stage; an interruption waits until it is written."""
        self.state = dataclasses.replace(
            self.state,
            step=step,
            steps={**self.state.steps, self._stage_name: step},
            finished=finished,
            version=self._parts.version,
            wall_s=self.wall_s,
            mixture=mixture,
            plateau=plateau or {},
            steering=steering,
            good=good,
        )
        self._parts.observer.phase("writing a checkpoint")
        writing = asyncio.ensure_future(self._write(self.state))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            await writing
            raise

    def history(self) -> list[MetricsRecord]:
        """The present stage's records so far."""
        return [record for record in read_metrics(self.directory.metrics).records if record.stage == self._stage_name]

    def return_to_good(self, roll_back: RollBack) -> Path:
        """Cut everything off behind the last good checkpoint; `state` is then its, with the roll-back noted.

        A run that is killed on the way comes here again by itself: what led here is learned again, bit for bit.
        """
        stage = self.state.stage
        whole = [found for found in self._checkpoints.whole() if found.state.get("good", True)]
        if not whole:
            raise StoreError(f"{self.directory.path} holds no checkpoint that the run may return to")
        good = whole[-1]
        self._checkpoints.remove_after(good)
        state = TypeAdapter(RunState).validate_python(good.state)
        if state.stage != stage:  # the end of the stage before
            state = dataclasses.replace(state, stage=stage, step=0, finished=False, reference={}, steering=NEUTRAL)
        position = Position(stage, state.step)
        self._metrics.truncate_after(position)
        self._trajectories.truncate_after(position)
        self._weights.truncate_after(position)
        remove_reports_after(self.directory.evals, stage + 1, self._config.stages[stage].name, state.step)
        # A pause that comes after the return is a new one.
        lifted = {domain: min(step, state.step) for domain, step in self.state.lifted.items()}
        self.state = dataclasses.replace(
            state,
            roll_backs=(*self.state.roll_backs, roll_back),
            verifiers=self.state.verifiers,
            lifted=lifted,
        )
        return good.path

    async def _write(self, state: RunState) -> None:
        label = f"{self._stage_name}-{state.step:06d}"
        folder = await asyncio.to_thread(self._checkpoints.begin, label)
        await self._parts.learner.save(folder)
        await asyncio.to_thread(self._checkpoints.commit, folder, dataclasses.asdict(state))

    def finish(self, *, gain_rl: Gain | None, steps: int) -> None:
        """The run's last word."""
        self.directory.write_result(
            {
                "model": self._config.model,
                "steps": steps,
                "wall_s": self.wall_s,
                "gain_rl": dataclasses.asdict(gain_rl) if gain_rl is not None else None,
            }
        )

    @property
    def _stage_name(self) -> str:
        return self._config.stages[self.state.stage].name

    @property
    def _constants_path(self) -> Path:
        return self.directory.path / "best_constant.json"
