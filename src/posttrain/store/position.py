"""Where a run is: how many steps of which stage are done. The order of a run's records, and their file names.

It knows neither what a stage does nor how many steps it has.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_PATTERN = re.compile(r"(\d{2,})-(\d{6,})")


@dataclass(frozen=True, order=True)
class Position:
    """After `step` steps of the stage with number `stage_index`; steps count from 1, so 0 is the stage's begin."""

    stage_index: int
    step: int

    def __str__(self) -> str:
        return f"{self.stage_index:02d}-{self.step:06d}"

    @classmethod
    def parse(cls, name: str) -> Position | None:
        """The position that `str` gave `name` to; None where it did not."""
        match = _PATTERN.fullmatch(name)
        return cls(int(match[1]), int(match[2])) if match else None
