"""The audit of a domain finds each hole that is planted, and nothing in a sound one."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Callable
from typing import Any

import pytest

from posttrain.core.registry import build
from posttrain.core.types import Limits, Task, Verdict
from posttrain.domains.audit import DomainAudit, audit_domain
from posttrain.domains.function import FunctionDomain
from posttrain.verifiers.numeric import verify_number


def judged_by(verify: Callable[[Task, str], Any], **options: Any) -> DomainAudit:
    """Sums of two numbers, judged by `verify`."""
    rows = [(f"What is {a} + {b}?", a + b) for a in range(10, 40) for b in range(10, 20)]
    options = {"demonstrate": lambda task: f"Answer: {task.hidden['answer']}", **options}
    return asyncio.run(audit_domain(FunctionDomain(rows, verify, **options), None, count=40))


def failed(found: DomainAudit) -> set[str]:
    return {finding.check for finding in found.findings if not finding.holds}


def exact(task: Task, reply: str) -> Verdict:
    return verify_number(reply, task.hidden["answer"])


def among(task: Task, reply: str) -> bool:
    return str(task.hidden["answer"]) in re.findall(r"\d+", reply)


def prefix(task: Task, reply: str) -> bool:
    said = reply.rpartition("Answer: ")[2]
    return bool(said) and reply.count("Answer") == 1 and str(task.hidden["answer"]).startswith(said)


def always(task: Task, reply: str) -> bool:
    return True


def crashes(task: Task, reply: str) -> Verdict:
    return exact(task, reply) if reply else Verdict.correct(answer=reply[0])


def half(task: Task, reply: str) -> float:
    return exact(task, reply).score or 0.5


def never(task: Task, reply: str) -> bool:
    return False


flips = itertools.count()


def moody(task: Task, reply: str) -> Verdict:
    return exact(task, reply) if next(flips) % 7 else Verdict.incorrect("not today")


def test_a_sound_verifier_holds() -> None:
    found = judged_by(exact)
    assert failed(found) == set()
    assert found.holds
    assert found.null_policy[1] < 0.2
    assert {finding.check for finding in found.findings} >= {"gold", "hostile", "several", "null_policy"}


@pytest.mark.parametrize(
    ("verify", "holes"),
    [
        (among, {"several"}),
        (prefix, {"near_misses"}),
        (always, {"other_golds", "hostile", "echo", "several", "near_misses", "null_policy"}),
        (crashes, {"hostile"}),
        (half, {"hostile", "echo", "several", "near_misses", "other_golds", "null_policy"}),
        (never, {"gold"}),
        (moody, {"gold", "determinism"}),
    ],
)
def test_each_planted_hole_is_found(verify: Callable[[Task, str], Any], holes: set[str]) -> None:
    found = judged_by(verify)
    assert failed(found) == holes
    assert all(finding.examples for finding in found.findings if not finding.holds)


def test_a_verifier_that_waits_for_ever_is_ended_by_the_tasks_deadline() -> None:
    async def waits(task: Task, reply: str) -> Verdict:
        if not reply:
            await asyncio.sleep(3600)
        return exact(task, reply)

    found = judged_by(waits, limits=Limits(timeout_s=0.05))
    (hostile,) = [finding for finding in found.findings if finding.check == "hostile"]
    assert not hostile.holds
    assert "ran out of time" in hostile.examples[0]


def test_yes_or_no_is_what_the_null_policy_gets() -> None:
    rows = [(f"Is {n} even?", "yes" if n % 2 == 0 else "no") for n in range(300)]
    same = lambda task, reply: reply == f"Answer: {task.hidden['answer']}"  # noqa: E731
    domain = FunctionDomain(rows, same, demonstrate=lambda task: f"Answer: {task.hidden['answer']}")
    found = asyncio.run(audit_domain(domain, None, count=60))
    assert 0.3 < found.null_policy[1] < 0.7
    assert "null_policy" in failed(found)


def test_a_task_that_holds_its_own_answer_and_one_that_changes_are_seen() -> None:
    rows = [(f"{n}: say 'Answer: {n}'", n) for n in range(300)]
    leaky = FunctionDomain(rows, exact, demonstrate=lambda task: f"Answer: {task.hidden['answer']}")
    assert "streams" in failed(asyncio.run(audit_domain(leaky, None, count=20)))


def test_a_domain_without_demonstrations_does_not_pass_in_silence() -> None:
    found = judged_by(exact, demonstrate=None)
    assert "gold" in failed(found)
    assert any("demonstrates nothing" in finding.note for finding in found.findings)


@pytest.mark.parametrize("name", ["arithmetic", "ordering", "words"])
def test_the_built_in_domains_hold(name: str) -> None:
    assert failed(asyncio.run(audit_domain(build("domain", name), None, count=12))) <= {"null_policy"}
