"""What a sandbox says about itself: the isolation it gives, and what it did since it was made. Plain records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from posttrain.core.sandboxing import IsolationTier, ResultClass


@dataclass(frozen=True)
class Percentiles:
    """Over the last so many measurements, each of them one that was measured; 0 where there is none yet."""

    p50: float = 0.0
    p90: float = 0.0
    p99: float = 0.0


@dataclass(frozen=True)
class SandboxFigures:
    """Counts are since the sandbox was made."""

    slots_created: int = 0
    slots_destroyed: int = 0
    sessions: int = 0
    """Open now."""
    queued: int = 0
    """Executions that wait now."""
    running: int = 0
    """Executions that have their turn now."""
    wait_s: Percentiles = Percentiles()
    """From asking to having a turn."""
    run_s: Percentiles = Percentiles()
    """What a turn takes, the start of a slot included where one was needed."""
    start_s: Percentiles = Percentiles()
    """Of a slot."""
    ended: Mapping[ResultClass, int] = field(default_factory=dict)
    """Executions by how they ended, retries of ours left out."""
    retries: int = 0
    """Executions that were begun again after a fault of ours."""
    leaked_slots: int = 0
    """Their processes could not be ended."""
    leaked_cgroups: int = 0
    """They could not be removed."""

    @property
    def slots_live(self) -> int:
        return self.slots_created - self.slots_destroyed


@dataclass(frozen=True)
class SandboxStatus:
    """`kernel`, `landlock_abi` and `cgroup` are those of the machine that runs the programs; None where unknown."""

    tier: IsolationTier
    concurrency: int
    figures: SandboxFigures
    kernel: str | None = None
    landlock_abi: int | None = None
    """0 where the kernel has no Landlock."""
    cgroup: bool | None = None
    missing: tuple[str, ...] = ()
    """A sentence for each thing that this machine lacks, with the setting that brings it."""
    draining: bool = False
    """A server that takes no more executions."""


@runtime_checkable
class HasStatus(Protocol):
    """A sandbox that can be asked. May block for a moment, and raises as the sandbox's `tier` does."""

    def status(self) -> SandboxStatus: ...


@runtime_checkable
class HasFigures(Protocol):
    """A sandbox that counts what it is asked for. Returns at once."""

    def figures(self) -> SandboxFigures: ...
