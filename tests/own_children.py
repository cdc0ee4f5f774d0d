"""The children of this process, those that nobody has waited for included."""

from __future__ import annotations

from pathlib import Path


def own_children() -> list[int]:
    return [pid for task in Path("/proc/self/task").iterdir() for pid in children_of(task)]


def children_of(task: Path) -> list[int]:
    """Of one thread, by its folder under /proc; none of a thread that has ended since its folder was listed."""
    try:
        return [int(pid) for pid in (task / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []
