"""One stored attempt: a trajectory with its task's coordinates, flat, as a table's row.

What the task hides from the policy is left out; the domain makes the task again from split, seed, index and level.
"""

from __future__ import annotations

from dataclasses import dataclass

from posttrain.core.types import (
    BoolArray,
    Cost,
    Detection,
    Failure,
    FloatArray,
    IntArray,
    Message,
    Reward,
    Split,
    StopReason,
    Trajectory,
    Turn,
    Verdict,
    VerdictStatus,
)
from posttrain.store.position import Position


@dataclass(frozen=True)
class TrajectoryRow:
    """An attempt as it was recorded. Raises ValueError where the token arrays differ in length (law L14)."""

    stage_index: int
    step: int
    trajectory_id: str
    group_id: str
    sibling: int
    task_id: str
    domain: str
    level: int
    split: Split
    seed: int
    index: int
    prompt: tuple[Message, ...]
    reply: str
    tokens: IntArray  # [T]
    sampled: BoolArray  # [T]
    behavior_logprobs: FloatArray  # [T]
    versions: IntArray  # [T]
    turns: tuple[Turn, ...]
    """Without what their environments noted."""
    stop: StopReason
    verdict: Verdict | None
    """Without its evidence and wall time."""
    reward: Reward | None
    failure: Failure | None
    cost: Cost
    detections: tuple[Detection, ...] = ()
    held_out: Verdict | None = None
    """Without its parts, evidence and wall time."""
    quarantine: str = ""

    def __post_init__(self) -> None:
        lengths = [len(self.tokens), len(self.sampled), len(self.behavior_logprobs), len(self.versions)]
        if len(set(lengths)) != 1:
            raise ValueError(
                f"trajectory {self.trajectory_id}: ids, mask, log-probs and versions have the lengths {lengths}"
            )

    @classmethod
    def of(cls, trajectory: Trajectory, position: Position) -> TrajectoryRow:
        task = trajectory.task
        return cls(
            stage_index=position.stage_index,
            step=position.step,
            trajectory_id=trajectory.trajectory_id,
            group_id=trajectory.group_id,
            sibling=trajectory.sibling,
            task_id=task.task_id,
            domain=task.domain,
            level=task.level,
            split=task.split,
            seed=task.seed,
            index=task.index,
            prompt=task.prompt,
            reply=trajectory.reply,
            tokens=trajectory.tokens,
            sampled=trajectory.sampled,
            behavior_logprobs=trajectory.behavior_logprobs,
            versions=trajectory.versions,
            turns=trajectory.turns,
            stop=trajectory.stop,
            verdict=trajectory.verdict,
            reward=trajectory.reward,
            failure=trajectory.failure,
            cost=trajectory.cost,
            detections=trajectory.detections,
            held_out=trajectory.held_out,
            quarantine=trajectory.quarantine,
        )

    @property
    def position(self) -> Position:
        return Position(self.stage_index, self.step)

    @property
    def status(self) -> VerdictStatus:
        """What was said of the attempt; NO_VERDICT also where a failure of ours left nothing to say."""
        if self.failure is not None or self.verdict is None:
            return VerdictStatus.NO_VERDICT
        return self.verdict.status

    @property
    def why_unscored(self) -> str:
        """Boundary and reason of the failure that left the attempt without a verdict; empty for a scored one."""
        if self.failure is not None:
            return f"{self.failure.boundary}: {self.failure.reason}"
        if self.status is VerdictStatus.NO_VERDICT:
            return f"verifier: {self.verdict.reason if self.verdict is not None else 'it was not asked'}"
        return ""
