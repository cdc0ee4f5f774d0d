"""What a mutant is: the code under test with one mistake in it, of a kind that somebody has made before."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

SOURCE = Path(__file__).parents[3] / "src" / "posttrain"


class Mistake(StrEnum):
    DROP_A_MASK = "drop a mask"
    DIVIDE_TWICE = "divide twice"
    LOCAL_COUNT = "use the local count"
    FLIP_A_SIGN = "flip a sign"
    FORGET_THE_TEMPERATURE = "forget the temperature"
    SWAP_K1_AND_K3 = "swap k1 and k3"
    COUNT_TWICE = "count twice"
    FORGET_A_FACTOR = "forget a factor, a part or a bound"
    WRONG_STATISTIC = "take another statistic"
    WRONG_PLACE = "look in another place"


@dataclass(frozen=True)
class Mutant:
    name: str
    mistake: Mistake
    file: str
    """Under `src/posttrain`."""
    before: str
    """Occurs exactly once in the file."""
    after: str
    killers: tuple[str, ...]
    """Tests under `tests` of which one is to object: node ids."""

    @property
    def source(self) -> str:
        return (SOURCE / self.file).read_text()

    @property
    def mutated(self) -> str:
        return self.source.replace(self.before, self.after)
