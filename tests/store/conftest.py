"""Builders of stored things."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from posttrain.core.types import Cost, Message, Reward, Role, Split, StopReason, Task, Trajectory, Turn, Verdict


@pytest.fixture(autouse=True)
def quick_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here cuts the power, so these tests need not wait for the disk."""
    monkeypatch.setattr("os.fsync", lambda _: None)


MakeTrajectory = Callable[..., Trajectory]


@pytest.fixture
def make_trajectory() -> MakeTrajectory:
    """A correct one-turn attempt with `length` tokens, the last two of them sampled; fields may be replaced."""

    def make(name: str = "t0", length: int = 6, **fields: Any) -> Trajectory:
        prompt = (Message(Role.SYSTEM, "Be brief."), Message(Role.USER, "What is 2 + 2? “ü”"))
        task = Task("arithmetic", prompt, {"answer": 4}, Split.TRAIN, seed=2**62, index=7, level=2)
        sampled = np.arange(length) >= length - 2
        default: dict[str, Any] = {
            "trajectory_id": name,
            "task": task,
            "group_id": "g0",
            "sibling": 1,
            "tokens": np.arange(length, dtype=np.int32),
            "sampled": sampled,
            "behavior_logprobs": np.where(sampled, -0.1, 0.0).astype(np.float32),
            "versions": np.where(sampled, 3, -1).astype(np.int32),
            "turns": (Turn(length - 2, length),),
            "reply": "4\n<b>",
            "stop": StopReason.STOP,
            "verdict": Verdict.correct(answer="4", parts={"form": 1.0}, flags=("several_answers",)),
            "reward": Reward(1.0, {"correct": 1.0}, {"correct": 1.0}, {"form": True}),
            "cost": Cost(2, 0.5, 0.25),
        }
        return Trajectory(**{**default, **fields})

    return make
