"""The hidden tests of generated programs, measured: they see every arm of the reference and kill its mutants."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from posttrain.core.protocols import Sandbox
from posttrain.core.registry import build
from posttrain.core.types import Split, Task
from posttrain.domains.program_families import Family, Lists, Pairs, Scalars, Texts
from posttrain.domains.python_functions import SANDBOX_LIMITS, PythonFunctions
from posttrain.verifiers.python_code import HiddenTests
from posttrain.verifiers.quality.admission import Thresholds, admissible
from posttrain.verifiers.quality.measure import Subject, measure
from posttrain.verifiers.quality.mutation import Mutation
from posttrain.verifiers.quality.report import QualityReport

LEVELS_AND_FAMILIES: list[tuple[int, Family]] = [
    (1, Scalars()),
    (2, Lists(parts=1)),
    (3, Lists(parts=2)),
    (4, Texts()),
    (4, Pairs()),
]
every_family = pytest.mark.parametrize(
    ("level", "family"), LEVELS_AND_FAMILIES, ids=["1-scalars", "2-lists", "3-lists", "4-texts", "4-pairs"]
)
EVERYTHING = Thresholds(min_mutation_score=0.9, min_line_coverage=1.0, min_branch_coverage=1.0)
"""Stricter than a task's defaults: these references guard against nothing, and there are probes."""


@dataclass
class Tasks:
    """The first tasks of a stream that belong to one family."""

    level: int
    family: Family
    split: Split = Split.TRAIN
    domain: PythonFunctions = field(default_factory=PythonFunctions)

    def first(self, count: int, seed: int) -> list[Task]:
        found: list[Task] = []
        index = 0
        while len(found) < count:
            task = self.domain.task(self.split, seed, index, self.level)
            if f"f({self.family.arguments})" in task.prompt[0].content:
                found.append(task)
            index += 1
        return found

    def measured(self, sandbox: Sandbox, task: Task) -> QualityReport:
        return asyncio.run(measure(sandbox, self.domain.subject(task), num_orders=2, num_hash_seeds=1))


def check(tasks: Tasks, count: int, seed: int) -> None:
    sandbox: Sandbox = build("sandbox", "local")
    for task in tasks.first(count, seed):
        report = tasks.measured(sandbox, task)
        assert admissible(report, EVERYTHING) == (), report.text()
        assert isinstance(report.mutation, Mutation)
        # A single call, such as abs(x), can only be forgotten: one mistake beside the two constant answers.
        assert len(report.mutation.judged) >= 3, "a score over constant answers alone"


@pytest.mark.parametrize("split", Split)
@every_family
def test_hidden_tests_are_worth_admitting(level: int, family: Family, split: Split) -> None:
    check(Tasks(level, family, split), count=1, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("split", Split)
@every_family
def test_a_larger_sample_of_hidden_tests_is_worth_admitting(level: int, family: Family, split: Split) -> None:
    check(Tasks(level, family, split), count=40, seed=2)


@every_family
def test_a_task_is_measured_with_its_own_familys_probes_and_under_the_domains_limits(
    level: int, family: Family
) -> None:
    tasks = Tasks(level, family)
    (task,) = tasks.first(1, seed=1)
    subject = tasks.domain.subject(task)
    assert subject.probes == family.probes
    assert subject.limits == SANDBOX_LIMITS


@every_family
def test_the_first_hidden_test_alone_is_not(level: int, family: Family, trusted_sandbox: Sandbox) -> None:
    tasks = Tasks(level, family)
    (task,) = tasks.first(1, seed=1)
    tests = HiddenTests.read(task.hidden)
    alone = HiddenTests(tests.function, tests.inputs[:1], tests.expected[:1])
    subject = Subject(task.task_id, tasks.domain.demonstration(task), alone, SANDBOX_LIMITS, family.probes)
    report = asyncio.run(measure(trusted_sandbox, subject, num_hash_seeds=0))
    assert "want the same answer" in " ".join(admissible(report)), report.text()
    assert isinstance(report.mutation, Mutation)
    assert report.mutation.score < 1.0
