"""Suites are fixed, distinct and known by what they hold."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from posttrain.core.errors import ConfigError
from posttrain.core.protocols import Environment, Sandbox
from posttrain.core.seeding import stable_hash
from posttrain.core.types import Message, Role, Split, Task
from posttrain.gate.suite import build_suite


@dataclass(frozen=True)
class Numbers:
    """Draws one of `size` problems at each level; repeats itself like any generator of small problems."""

    name: str
    size: int = 1000
    levels: int = 3
    version: str = "1"
    licence: str = "Apache-2.0"
    needs_sandbox: bool = False
    task_domain: str = ""

    def task(self, split: Split, seed: int, index: int, level: int) -> Task:
        number = stable_hash("numbers", split, seed, index, level) % self.size
        prompt = (Message(Role.USER, f"{split}: say {number} at level {level}"),)
        return Task(self.task_domain or self.name, prompt, {"number": number}, split, seed, index, level)

    def environment(self, task: Task, sandbox: Sandbox | None) -> Environment:
        raise NotImplementedError

    def demonstration(self, task: Task) -> str | None:
        return str(task.hidden["number"])


def test_every_domain_gets_exactly_the_tasks_asked_for_and_all_differ() -> None:
    suite = build_suite({"a": Numbers("a", size=70), "b": Numbers("b")}, {"a": 1, "b": 2}, tasks=64, seed=5)
    assert {name: len(tasks) for name, tasks in suite.tasks.items()} == {"a": 64, "b": 64}
    assert len(suite.task_ids) == len(suite) == 128
    assert all(task.split is Split.EVAL for task in suite.interleaved())


def test_a_domain_with_just_enough_tasks_gives_them_all() -> None:
    assert len(build_suite({"a": Numbers("a", size=64)}, {"a": 1}, tasks=64, seed=0)) == 64


def test_a_domain_with_too_few_tasks_is_refused_with_both_numbers() -> None:
    with pytest.raises(ConfigError, match=r"domain a gave only 10 distinct evaluation tasks of the 64 .* level 1"):
        build_suite({"a": Numbers("a", size=10)}, {"a": 1}, tasks=64, seed=0)


def test_levels_take_turns_and_share_equally() -> None:
    suite = build_suite({"a": Numbers("a")}, {"a": [1, 3]}, tasks=9, seed=0)
    assert [task.level for task in suite.tasks["a"]] == [1, 3] * 4 + [1]


def test_the_same_arguments_give_the_same_suite_and_a_new_seed_another() -> None:
    def suite_id(seed: int) -> str:
        return build_suite({"a": Numbers("a"), "b": Numbers("b")}, {"a": 1, "b": 1}, tasks=16, seed=seed).suite_id

    assert suite_id(0) == suite_id(0)
    assert suite_id(0) != suite_id(1)


def test_a_small_suite_is_the_beginning_of_a_large_one() -> None:
    small, large = (build_suite({"a": Numbers("a", size=50)}, {"a": [1, 2]}, tasks=n, seed=3) for n in (10, 40))
    assert large.tasks["a"][:10] == small.tasks["a"]


def test_any_stretch_of_the_interleaved_suite_holds_all_domains() -> None:
    names = ["b", "a", "c"]
    suite = build_suite({n: Numbers(n) for n in names}, dict.fromkeys(names, 1), tasks=4, seed=0)
    assert [task.domain for task in suite.interleaved()] == names * 4
    assert [task for task in suite.interleaved() if task.domain == "a"] == list(suite.tasks["a"])


def test_a_domain_without_a_level_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="no level for domain b"):
        build_suite({"a": Numbers("a"), "b": Numbers("b")}, {"a": 1}, tasks=4, seed=0)


def test_a_domain_under_a_foreign_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="the domain named sums makes tasks of arithmetic"):
        build_suite({"sums": Numbers("sums", task_domain="arithmetic")}, {"sums": 1}, tasks=4, seed=0)
