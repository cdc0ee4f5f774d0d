"""How old what is about to be learned from is: computed from the tokens, never counted (law L19). It bounds nothing."""

from __future__ import annotations

from collections.abc import Sequence

from posttrain.core.types import Group


def staleness(groups: Sequence[Group], version: int) -> int:
    """`version`, the trainer's, minus that of the oldest sampled token; 0 where nothing was sampled."""
    oldest = [
        int(trajectory.versions[trajectory.sampled].min())
        for group in groups
        for trajectory in group.trajectories
        if trajectory.sampled.any()
    ]
    return version - min(oldest) if oldest else 0
