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
    """8 to 12 inputs with what the program gives: the family's first ones, then such as fail most of the siblings that
    pass the tests so far."""
    alive = list(siblings(family, pieces))
    candidates = [(arguments, family.compute(pieces, arguments)) for arguments in family.inputs(pieces, state)]
    chosen = candidates[:FIXED_TESTS]
    for test in chosen:
        alive = _passing(family, alive, test)
    while alive and len(chosen) < MAX_TESTS:
        left = [_passing(family, alive, test) for test in candidates]
        fewest = min(left, key=len)
        if len(fewest) == len(alive):
            break
        chosen.append(candidates[left.index(fewest)])
        alive = fewest
    return chosen


def _passing(family: Family, programs: list[Pieces], test: tuple[Arguments, Json]) -> list[Pieces]:
    arguments, expected = test
    return [pieces for pieces in programs if family.compute(pieces, arguments) == expected]


def mutation_score(family: Family, pieces: Pieces, tests: list[tuple[Arguments, Json]]) -> float:
    """Share of the siblings that fail `tests`, among those that are another function on the probes."""
    failed = alive = 0
    for other in siblings(family, pieces):
        if any(family.compute(other, arguments) != expected for arguments, expected in tests):
            failed += 1
        elif any(family.compute(other, probe) != family.compute(pieces, probe) for probe in family.probes):
            alive += 1
    return failed / (failed + alive) if failed else 0.0
