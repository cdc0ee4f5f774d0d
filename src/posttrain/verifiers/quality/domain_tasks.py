"""A sample of a domain's tasks, as they are measured: the first of every level and split.

A domain that is `Measurable` says how. Of any other, a task's `hidden` has its function and tests, as `HiddenTests`
reads them, and its demonstration is the reference; limits are a sandbox's defaults and there are no probes.
"""

from __future__ import annotations

import itertools

from posttrain.core.errors import UserError
from posttrain.core.protocols import Domain
from posttrain.core.types import Split, Task
from posttrain.verifiers.python_code import HiddenTests
from posttrain.verifiers.quality.measure import Measurable, Subject, read_reference


def domain_subjects(domain: Domain, count: int) -> list[Subject]:
    """`count` tasks of each level and split, each content once. Raises `UserError` for one that cannot be measured."""
    found: dict[str, Subject] = {}
    for level, split, index in itertools.product(range(1, domain.levels + 1), Split, range(count)):
        task = domain.task(split, 0, index, level)
        try:
            found[task.task_id] = domain.subject(task) if isinstance(domain, Measurable) else _subject(domain, task)
        except ValueError as error:
            place = f"{split} task {index} of level {level}"
            raise UserError(f"domain {domain.name}, {place}, cannot be measured: {error}") from error
    return list(found.values())


def _subject(domain: Domain, task: Task) -> Subject:
    tests, reply = HiddenTests.read(task.hidden), domain.demonstration(task)
    if reply is None:
        raise ValueError("it has no demonstration, which would be the reference")
    return Subject(task.task_id, read_reference(reply, tests.function), tests)
