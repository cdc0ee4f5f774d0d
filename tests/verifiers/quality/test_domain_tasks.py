"""A domain's tasks as they are measured: a domain's own word goes before the general form."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from posttrain.core.errors import UserError
from posttrain.core.protocols import Domain, Environment, Sandbox
from posttrain.core.sandboxing import SandboxLimits
from posttrain.core.types import Json, Message, Role, Split, Task
from posttrain.verifiers.python_code import HiddenTests
from posttrain.verifiers.quality.domain_tasks import domain_subjects
from posttrain.verifiers.quality.measure import Subject

PLUS_ONE = "def f(x):\n    return x + 1"


@dataclass
class Plain:
    """Two problems a level on the training side, then the same again; one on the other side."""

    reply: str | None = PLUS_ONE
    hidden: dict[str, Json] = field(default_factory=lambda: {"function": "f", "tests": [[[1], 2]]})
    name = "plain"
    version = "1"
    licence = "none"
    levels = 2
    needs_sandbox = True

    def task(self, split: Split, seed: int, index: int, level: int) -> Task:
        asked = f"{level} {index % 2}" if split is Split.TRAIN else f"{level} held out"
        return Task("plain", (Message(Role.USER, asked),), self.hidden, split, seed, index, level)

    def environment(self, task: Task, sandbox: Sandbox | None) -> Environment:
        raise AssertionError("nothing is attempted")

    def demonstration(self, task: Task) -> str | None:
        return self.reply


class Own(Plain):
    def subject(self, task: Task) -> Subject:
        tests = HiddenTests("g", ([3],), (4,))
        return Subject(task.task_id, "def g(x): return 4", tests, SandboxLimits(cpu_s=1.0), probes=[[9]])


def test_every_level_and_split_is_sampled_and_no_content_twice() -> None:
    domain: Domain = Plain()
    assert len(domain_subjects(domain, 1)) == 4
    assert len(domain_subjects(domain, 5)) == 6
    known = {domain.task(split, 0, index, level).task_id for split in Split for index in (0, 1) for level in (1, 2)}
    assert {subject.task for subject in domain_subjects(domain, 5)} == known


def test_the_demonstration_is_the_reference() -> None:
    subject = domain_subjects(Plain(reply=f"```\n{PLUS_ONE}\n```"), 1)[0]
    assert (subject.reference, subject.tests) == (PLUS_ONE, HiddenTests("f", ([1],), (2,)))
    assert subject.limits == SandboxLimits()


def test_a_domain_may_say_how_its_tasks_are_measured() -> None:
    subject = domain_subjects(Own(), 1)[0]
    assert (subject.tests.function, subject.limits.cpu_s, subject.probes) == ("g", 1.0, [[9]])


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"reply": None}, "no demonstration"),
        ({"reply": "I cannot."}, "never names the function f"),
        ({"hidden": {"answer": "7"}}, r"must be a list of \[arguments, expected\] pairs"),
        ({"hidden": {"function": "f", "tests": []}}, "no test"),
    ],
)
def test_a_task_that_cannot_be_measured_is_named(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=f"domain plain, train task 0 of level 1, cannot be measured: .*{complaint}"):
        domain_subjects(Plain(**change), 1)
