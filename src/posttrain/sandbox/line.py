"""Who is next: the higher priority first, then callers in turn, then whoever of one caller came first."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Line(Generic[T]):
    """Callers are named by strings. Not thread-safe."""

    def __init__(self) -> None:
        self._callers: dict[int, dict[str, deque[T]]] = {}
        """By priority; the callers of one in the order of their turns."""

    def __len__(self) -> int:
        return sum(len(line) for callers in self._callers.values() for line in callers.values())

    def add(self, waiter: T, caller: str, priority: int) -> None:
        self._callers.setdefault(priority, {}).setdefault(caller, deque()).append(waiter)

    def pop(self) -> T | None:
        """None where nobody waits."""
        if not self._callers:
            return None
        priority = max(self._callers)
        callers = self._callers[priority]
        caller, line = next(iter(callers.items()))
        del callers[caller]
        waiter = line.popleft()
        if line:
            callers[caller] = line  # behind the others
        elif not callers:
            del self._callers[priority]
        return waiter

    def remove(self, waiter: T) -> bool:
        """Whether it was there."""
        for priority, callers in self._callers.items():
            for caller, line in callers.items():
                if waiter in line:
                    line.remove(waiter)
                    if not line:
                        del callers[caller]
                    if not callers:
                        del self._callers[priority]
                    return True
        return False
