"""Endless task streams whose train and evaluation halves cannot overlap, whatever seeds are used (law L30).

Content itself is divided: a hash puts a fixed quarter of it on the evaluation side. A stream draws problems from a
random state that is a hash of (domain, split, seed, index, level) until one lies on its side. It does not promise
that two indices of one stream differ: a small level repeats itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from posttrain.core.errors import ConfigError
from posttrain.core.seeding import stable_hash, stable_random
from posttrain.core.types import Json, Limits, Message, Role, Split, Task

EVAL_ONE_IN = 4
MAX_TRIES = 2000


@dataclass(frozen=True)
class Problem:
    """A task before it has a place in a stream."""

    prompt: str
    hidden: Mapping[str, Json]
    content_key: str
    limits: Limits


def split_of(domain: str, content: str) -> Split:
    """Which side of the fixed division `content` lies on."""
    return Split.EVAL if stable_hash("split", domain, content) % EVAL_ONE_IN == 0 else Split.TRAIN


def draw(
    domain: str, split: Split, seed: int, index: int, level: int, make: Callable[[random.Random], Problem | None]
) -> Task:
    """The stream's task at `index`: the first problem of `make` that is admitted and lies on the split's side.

    `make` gives None for a problem that it does not admit. Raises `ConfigError` where many tries find nothing: the
    level's content space has too little on that side.
    """
    # Plain ints: a numpy integer would hash under another type's name.
    state = stable_random("task", domain, split.value, int(seed), int(index), int(level))
    for _ in range(MAX_TRIES):
        problem = make(state)
        if problem is None:
            continue
        assert problem.content_key, f"a problem of {domain} has no content key"
        if split_of(domain, problem.content_key) is split:
            return Task(
                domain=domain,
                prompt=(Message(Role.USER, problem.prompt),),
                hidden=problem.hidden,
                split=split,
                seed=int(seed),
                index=int(index),
                level=int(level),
                limits=problem.limits,
                content_key=problem.content_key,
            )
    raise ConfigError(
        f"domain {domain}, level {level}: {MAX_TRIES} tries gave no {split.value} task; the level's content space is "
        f"too small to be divided"
    )


def check_level(domain: str, level: int, levels: int) -> None:
    """Raises `ConfigError` for a level that the domain has not."""
    if not 1 <= level <= levels:
        raise ConfigError(f"domain {domain} has levels 1 to {levels}, not {level}")
