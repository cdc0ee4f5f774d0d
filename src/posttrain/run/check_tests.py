"""`posttrain check tests TASKS`, without the parsing: a file or a domain → each task's tests measured, and admitted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from posttrain.core.errors import UserError
from posttrain.core.protocols import Domain, Sandbox
from posttrain.core.registry import build
from posttrain.run.sandbox_spec import sandbox_spec
from posttrain.verifiers.quality.admission import Admission, decide
from posttrain.verifiers.quality.difficulty import DifficultySpread, spread
from posttrain.verifiers.quality.domain_tasks import domain_subjects
from posttrain.verifiers.quality.measure import Subject, measure
from posttrain.verifiers.quality.task_file import SUFFIX, read_subjects

NUM_OF_DOMAIN = 3
"""Tasks of each level and split, where no number is given."""


@dataclass(frozen=True)
class CheckedTests:
    name: str
    tier: str
    tasks: tuple[Admission, ...]

    @property
    def holds(self) -> bool:
        return all(self.tasks)

    @property
    def difficulty(self) -> DifficultySpread | None:
        """None where no task has replies."""
        measured = [task.report.difficulty for task in self.tasks if task.report.difficulty is not None]
        return spread(measured) if measured else None

    def plain(self) -> dict[str, Any]:
        """As JSON."""
        admitted = sum(map(bool, self.tasks))
        return {
            "name": self.name,
            "tier": self.tier,
            "admitted": admitted,
            "refused": len(self.tasks) - admitted,
            "difficulty": None if self.difficulty is None else asdict(self.difficulty),
            "tasks": [task.plain() for task in self.tasks],
        }


def check_tests(name: str, sandbox: str, count: int | None, progress: Callable[[str], None]) -> CheckedTests:
    """`name` is a JSONL file, or a domain that is registered or `path/to/file.py:Object`; `count` is for a domain.

    Raises `UserError` for tasks that cannot be measured, `UnknownNameError`, `IsolationUnavailableError`.
    """
    subjects = _subjects(name, count)
    built: Sandbox = build("sandbox", sandbox_spec(sandbox))
    tier = str(built.tier)
    return CheckedTests(name, tier, tuple(asyncio.run(_measured(built, subjects, progress))))


def _subjects(name: str, count: int | None) -> Sequence[Subject]:
    path = Path(name)
    if path.suffix == SUFFIX:
        if count is not None:
            raise UserError(f"every task of a file is measured: a number of tasks is for a domain, which {name} is not")
        return read_subjects(path)
    if path.is_file():
        raise UserError(f"tasks are read from {SUFFIX} files, which {name} is not")
    domain: Domain = build("domain", name)
    return domain_subjects(domain, NUM_OF_DOMAIN if count is None else count)


async def _measured(sandbox: Sandbox, subjects: Sequence[Subject], progress: Callable[[str], None]) -> list[Admission]:
    """One task after the other: the mutants of one keep a sandbox busy."""
    found = []
    try:
        for number, subject in enumerate(subjects, start=1):
            task = decide(await measure(sandbox, subject))
            found.append(task)
            verdict = "admitted" if task else f"refused: {task.reasons[0]}"
            progress(f"{number} of {len(subjects)}: {subject.task} {verdict}")
    finally:
        await sandbox.close()
    return found
