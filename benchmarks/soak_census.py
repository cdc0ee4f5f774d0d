"""What a process holds at a moment: processes, descriptors, mounts, files, groups, memory; to see what stays behind."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path

from posttrain.sandbox.cgroup import find_parents


@dataclass(frozen=True)
class Census:
    processes: int
    """All that come of this one, at any depth, dead ones that nobody waited for included."""
    descriptors: int
    mounts: int
    temporary_files: int
    """Entries of the folder for temporary files and of all folders in it."""
    cgroups: int
    """Made by this process."""
    resident_mib: float

    def more_than(self, other: Census) -> dict[str, float]:
        before = asdict(other)
        return {name: round(value - before[name], 3) for name, value in asdict(self).items()}


def census(temporary: Path) -> Census:
    parents = find_parents()
    groups = {parents.memory, parents.pids} if parents else set()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return Census(
        processes=len(_descendants()),
        descriptors=len(os.listdir("/proc/self/fd")) - 1,  # noqa: PTH208  # one is that of the listing
        mounts=len(Path("/proc/self/mountinfo").read_text().splitlines()),
        temporary_files=sum(1 for _ in temporary.rglob("*")),
        cgroups=sum(1 for folder in groups for _ in folder.glob(f"posttrain-{os.getpid()}-*")),
        resident_mib=pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20),
    )


def _descendants() -> set[int]:
    children = defaultdict(list)
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended while we looked
        children[parent].append(int(path.name))
    found: set[int] = set()
    unseen = [os.getpid()]
    while unseen:
        born = children[unseen.pop()]
        found.update(born)
        unseen += born
    return found
