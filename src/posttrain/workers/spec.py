"""What a worker is: a factory by name, plain configuration, and the settings a process must have before it starts.

A spec is data and starts nothing. It does not name a machine: a worker runs beside the process that starts it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ALLOCATOR_TUNABLES = ":".join(
    (
        "glibc.malloc.hugetlb=1",
        "glibc.malloc.mmap_threshold=4294967296",
        "glibc.malloc.trim_threshold=17179869184",
        "glibc.malloc.top_pad=268435456",
    )
)
"""Big temporaries stay in the heap: by default every operator maps, faults in and unmaps its own, which is slow."""


@dataclass(frozen=True)
class WorkerSpec:
    """How to start one worker. Starting the same spec twice gives two workers that know nothing of each other."""

    name: str
    """For people: it stands in every error."""
    factory: str
    """`package.module:callable`; called with `config` in the child, its result answers the calls."""
    log_path: Path
    """The child's standard output and standard error are appended here."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of the factory; pickled, between processes of ours only."""
    num_threads: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the child; they win over those computed here."""

    def __post_init__(self) -> None:
        module, _, attribute = self.factory.partition(":")
        if not module or not attribute:
            raise ValueError(f"worker {self.name}: its factory is package.module:callable, not {self.factory!r}")
        if self.num_threads < 1:
            raise ValueError(f"worker {self.name}: it needs at least 1 thread, not {self.num_threads}")

    @property
    def child_environment(self) -> dict[str, str]:
        """Every variable of the child: this process's own, thread and allocator settings, then `environment`."""
        threads = str(self.num_threads)
        return {
            **os.environ,
            "OMP_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
            "OPENBLAS_NUM_THREADS": threads,
            "OMP_WAIT_POLICY": "passive",  # a thread that waits must not spin on a core that another process needs
            "TOKENIZERS_PARALLELISM": "false",
            "GLIBC_TUNABLES": ALLOCATOR_TUNABLES,
            "PYTHONHASHSEED": "0",  # sets iterate in one order in every worker of every run
            "PYTHONUNBUFFERED": "1",  # a killed worker's last lines are in its log
            **self.environment,
        }
