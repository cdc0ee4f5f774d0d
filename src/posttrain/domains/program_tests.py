"""Hidden tests that tell a program from its wrong siblings, and the key by which programs are the same.

Two wordings of one function have one key: it is a hash of what the function gives on its family's probes. Tests are
chosen until siblings fail; what they are worth is their mutation score (attack 11). Nothing generated is run here.
"""

from __future__ import annotations

import hashlib
import json
import random

from posttrain.core.types import Json
from posttrain.domains.program_families import Arguments, Family, Pieces, siblings

FIXED_TESTS = 8
MAX_TESTS = 12


def content_key(family: Family, pieces: Pieces) -> str | None:
    """None for a function that gives the same everywhere: it is no problem."""
    values = [family.compute(pieces, probe) for probe in family.probes]
    if all(value == values[0] for value in values):
        return None
    digest = hashlib.blake2b(json.dumps(values).encode(), digest_size=12).hexdigest()
    return f"{family.arguments}:{digest}"


def choose_tests(family: Family, pieces: Pieces, state: random.Random) -> list[tuple[Arguments, Json]]:
    """8 to 12 inputs with what the program gives: the family's first ones, then such as fail siblings still alive."""
    alive = list(siblings(family, pieces))
    chosen: list[tuple[Arguments, Json]] = []
    for arguments in family.inputs(pieces, state):
        expected = family.compute(pieces, arguments)
        survivors = [other for other in alive if family.compute(other, arguments) == expected]
        if len(chosen) < FIXED_TESTS or len(survivors) < len(alive):
            chosen.append((arguments, expected))
            alive = survivors
        if len(chosen) == MAX_TESTS:
            break
    return chosen


def mutation_score(family: Family, pieces: Pieces, tests: list[tuple[Arguments, Json]]) -> float:
    """Share of the siblings that fail `tests`, among those that are another function on the probes."""
    failed = alive = 0
    for other in siblings(family, pieces):
        if any(family.compute(other, arguments) != expected for arguments, expected in tests):
            failed += 1
        elif any(family.compute(other, probe) != family.compute(pieces, probe) for probe in family.probes):
            alive += 1
    return failed / (failed + alive) if failed else 0.0
