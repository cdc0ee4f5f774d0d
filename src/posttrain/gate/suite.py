"""Fixed evaluation suites: the same distinct tasks in the same order for the same arguments, for ever.

A suite is known by the hash of its task ids, so that reports are compared only where they measured the same thing
(law L29), and it is checked against training tasks by content (law L30). It samples no policy and scores nothing.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count, zip_longest

from posttrain.core.errors import ConfigError, OverlapError
from posttrain.core.protocols import Domain
from posttrain.core.types import Split, Task

DRAWS_PER_TASK = 20
"""A level that repeats itself for this many draws in a row per task that it has given has no more tasks to give."""


@dataclass(frozen=True)
class Suite:
    """Distinct tasks of each domain, in a fixed order."""

    tasks: Mapping[str, tuple[Task, ...]]

    @cached_property
    def suite_id(self) -> str:
        return suite_hash(task.task_id for tasks in self.tasks.values() for task in tasks)

    @cached_property
    def task_ids(self) -> frozenset[str]:
        return frozenset(task.task_id for tasks in self.tasks.values() for task in tasks)

    def __len__(self) -> int:
        return sum(len(tasks) for tasks in self.tasks.values())

    def interleaved(self) -> list[Task]:
        """Every domain's first task, then every domain's second: any stretch of it holds all domains."""
        return [task for row in zip_longest(*self.tasks.values()) for task in row if task is not None]


def suite_hash(task_ids: Iterable[str]) -> str:
    """128 bits, hexadecimal, of task ids in a suite's order: domain by domain."""
    return hashlib.blake2b("\n".join(task_ids).encode(), digest_size=16).hexdigest()


def build_suite(
    domains: Mapping[str, Domain], levels: Mapping[str, int | Sequence[int]], *, tasks: int, seed: int
) -> Suite:
    """`tasks` distinct evaluation tasks of each domain, its levels taking turns.

    A suite with fewer tasks is the beginning of one with more. Raises `ConfigError` where a domain has too few
    tasks, has no level in `levels`, or stands under a name that its tasks do not carry.
    """
    if missing := sorted(domains.keys() - levels.keys()):
        raise ConfigError(f"the evaluation suite has no level for domain {', '.join(missing)}")
    return Suite({name: _distinct(name, domain, levels[name], tasks, seed) for name, domain in domains.items()})


def _distinct(name: str, domain: Domain, levels: int | Sequence[int], tasks: int, seed: int) -> tuple[Task, ...]:
    turns = [levels] if isinstance(levels, int) else list(levels)
    if not turns:
        raise ConfigError(f"the evaluation suite has no level for domain {name}")
    next_index = dict.fromkeys(turns, 0)
    chosen: dict[str, Task] = {}
    for position in range(tasks):
        level = turns[position % len(turns)]
        first_index = next_index[level]
        for index in count(first_index):
            task = domain.task(Split.EVAL, seed, index, level)
            if task.task_id not in chosen:
                break
            if index - first_index >= DRAWS_PER_TASK * (len(chosen) + 10):
                raise ConfigError(
                    f"domain {name} gave only {len(chosen)} distinct evaluation tasks of the {tasks} asked for: level "
                    f"{level} repeated itself {index - first_index} times in a row; lower evaluation.tasks or choose "
                    "another level"
                )
        if task.domain != name:
            raise ConfigError(f"the domain named {name} makes tasks of {task.domain}: name it {task.domain}")
        chosen[task.task_id] = task
        next_index[level] = index + 1
    return tuple(chosen.values())


def check_disjoint(train_tasks: Iterable[Task], suite: Suite) -> None:
    """Raises `OverlapError` where any of `train_tasks` has the content of an evaluation task (law L30)."""
    examples: dict[str, Task] = {}
    shared: Counter[str] = Counter()
    for task in {task.task_id: task for task in train_tasks if task.task_id in suite.task_ids}.values():
        examples.setdefault(task.domain, task)
        shared[task.domain] += 1
    if shared:
        sentences = [
            f"{number} of domain {domain}, for example {_quoted(examples[domain])}" for domain, number in shared.items()
        ]
        raise OverlapError(
            "training tasks are also evaluation tasks: " + "; ".join(sentences) + "; scores on them would mean nothing"
        )


def _quoted(task: Task) -> str:
    text = " ".join(task.prompt[-1].content.split()) if task.prompt else ""
    return f"{text[:120]!r} (task {task.task_id}, training seed {task.seed}, index {task.index}, level {task.level})"
