"""One machine: engines and learner ranks as worker processes with few threads each.

On a few cores several one-thread processes beat one process with several threads (a thread that loses its core
stalls every operator), so that is the default. It knows parts by name and imports none of them.
"""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posttrain.fleet.engines import EnginePool
from posttrain.fleet.host import host
from posttrain.fleet.learners import LearnerGroup


@dataclass(frozen=True)
class Placement:
    """How many processes a part gets, and threads each. No process: the part lives in the driver."""

    processes: int = 2
    num_threads: int = 1

    def __post_init__(self) -> None:
        if self.processes < 0 or self.num_threads < 1:
            raise ValueError("processes must be at least 0 and num_threads at least 1")


async def start_engines(spec: dict[str, Any], placement: Placement, logs: Path) -> EnginePool:
    """`spec` is `{"name": …, "model": …, options…}` of a component of kind "engine"."""
    hosts = [
        host(
            f"engine-{number}",
            "posttrain.fleet.engines:make_engine",
            {"spec": spec},
            logs=logs,
            num_threads=placement.num_threads,
            in_process=placement.processes == 0,
        )
        for number in range(max(1, placement.processes))
    ]
    return EnginePool(await asyncio.gather(*hosts))


async def start_learners(options: dict[str, Any], placement: Placement, logs: Path) -> LearnerGroup:
    """`options` are those of `learn.trainer:Trainer`, without its rank."""
    ranks = max(1, placement.processes)
    rendezvous = tempfile.mkdtemp(prefix="posttrain-") if ranks > 1 else ""
    hosts = [
        host(
            f"learner-{rank}",
            "posttrain.learn.trainer:Trainer",
            {**options, "rank": rank, "world_size": ranks, "rendezvous": rendezvous},
            logs=logs,
            num_threads=placement.num_threads,
            in_process=placement.processes == 0,
        )
        for rank in range(ranks)
    ]
    return LearnerGroup(await asyncio.gather(*hosts), Path(rendezvous) if rendezvous else None)
