"""Shares are exact over short stretches, and the stream is a function of the mixture's state."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.core.errors import ConfigError, OverlapError, StoppedByRuleError
from posttrain.core.protocols import Environment, Mixture, Sandbox
from posttrain.core.types import Group, Message, Reward, Role, Split, StopReason, Task, Trajectory, Verdict
from posttrain.schedule.stratified import Stratified


@dataclass(frozen=True)
class Numbers:
    """Its task is its index, modulo `size`."""

    name: str
    size: int = 1_000_000
    levels: int = 5
    version: str = "1"
    licence: str = "Apache-2.0"
    needs_sandbox: bool = False

    def task(self, split: Split, seed: int, index: int, level: int) -> Task:
        prompt = (Message(Role.USER, f"{split} {seed} {index % self.size} {level}"),)
        return Task(self.name, prompt, {}, split, seed, index, level)

    def environment(self, task: Task, sandbox: Sandbox | None) -> Environment:
        raise NotImplementedError

    def demonstration(self, task: Task) -> str | None:
        return None


def mixture(weights: dict[str, float], *, seed: int = 0, excluded: frozenset[str] = frozenset()) -> Stratified:
    domains = {name: Numbers(name) for name in weights}
    return Stratified(domains, weights, dict.fromkeys(weights, 1), seed, excluded)


def group(task: Task, verdicts: list[Verdict]) -> Group:
    attempts = []
    for sibling, verdict in enumerate(verdicts):
        none = np.zeros(0, dtype=np.int32)
        attempts.append(
            Trajectory(
                trajectory_id=f"g/{sibling}",
                task=task,
                group_id="g",
                sibling=sibling,
                tokens=none,
                sampled=none.astype(np.bool_),
                behavior_logprobs=none.astype(np.float32),
                versions=none,
                turns=(),
                reply="",
                stop=StopReason.STOP,
                verdict=verdict,
                reward=Reward(verdict.score),
            )
        )
    return Group("g", task, tuple(attempts))


def test_it_is_a_mixture() -> None:
    seam: Mixture = mixture({"a": 1.0})
    assert seam.next().split is Split.TRAIN


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from([0.5, 1.0, 1.0, 3.0, 10.0, 20.0]), min_size=1, max_size=24), st.integers(1, 60))
def test_every_domain_is_within_one_task_of_its_share_after_any_number_of_tasks(
    weights: list[float], stretch: int
) -> None:
    named = {f"d{number:02d}": weight for number, weight in enumerate(weights)}
    mix = mixture(named)
    errors = [dict.fromkeys(named, 0.0)]
    given_tasks: Counter[str] = Counter()
    for turn in range(1, 200):
        given_tasks[mix.next().domain] += 1
        errors.append({name: given_tasks[name] - turn * weight / sum(weights) for name, weight in named.items()})
        assert max(map(abs, errors[-1].values())) < 1.0
    assert all(abs(b[name] - a[name]) < 2.0 for a, b in zip(errors, errors[stretch:], strict=False) for name in named)


def test_many_rare_domains_that_fall_due_together_do_not_wait_longer_than_their_turn() -> None:
    """The largest deficit first leaves one of these 1.4 tasks behind."""
    weights = {f"d{n:02d}": weight for n, weight in enumerate([1.0] * 11 + [10.0] * 5 + [20.0] * 4)}
    mix, counts = mixture(weights), Counter[str]()
    for turn in range(1, 600):
        counts[mix.next().domain] += 1
        assert all(abs(counts[name] - turn * w / sum(weights.values())) < 1.0 for name, w in weights.items())


def test_equal_shares_take_turns_by_name() -> None:
    mix = mixture({"b": 1.0, "a": 1.0, "c": 1.0})
    assert [mix.next().domain for _ in range(6)] == ["a", "b", "c"] * 2


def test_more_domains_than_tasks_in_a_step_are_all_reached() -> None:
    mix = mixture({f"d{number:03d}": 1.0 for number in range(300)})
    steps = [Counter(mix.next().domain for _ in range(256)) for _ in range(20)]
    total = sum(steps, Counter[str]())
    assert len(total) == 300
    assert {17, 18} == set(total.values())


def test_a_weight_of_zero_leaves_a_domain_out() -> None:
    mix = mixture({"a": 0.0, "b": 2.0})
    assert {mix.next().domain for _ in range(20)} == {"b"}


def test_each_domain_is_read_in_order() -> None:
    mix = mixture({"a": 1.0, "b": 3.0})
    tasks = [mix.next() for _ in range(40)]
    for name in "ab":
        indices = [task.index for task in tasks if task.domain == name]
        assert indices == list(range(len(indices)))


def test_a_domains_tasks_do_not_depend_on_the_other_domains() -> None:
    def of_a(weights: dict[str, float]) -> list[str]:
        domains = {name: Numbers(name) for name in weights}
        mix = Stratified(domains, weights, {name: {1: 1.0, 2: 1.0} for name in weights}, 0)
        return [task.task_id for task in (mix.next() for _ in range(80)) if task.domain == "a"][:20]

    assert of_a({"a": 1.0, "b": 1.0}) == of_a({"a": 2.0, "b": 1.0, "c": 1.0})


def test_levels_come_at_their_frequencies_keyed_by_seed_and_index() -> None:
    def levels(seed: int) -> list[int]:
        mix = Stratified({"a": Numbers("a")}, {"a": 1.0}, {"a": {2: 3.0, 4: 1.0}}, seed)
        return [mix.next().level for _ in range(800)]

    counts = Counter(levels(0))
    assert set(counts) == {2, 4}
    assert counts[2] == pytest.approx(600, abs=50)
    assert levels(0) == levels(0) != levels(1)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 50), st.integers(1, 50))
def test_a_resumed_mixture_goes_on_with_the_same_tasks(before: int, after: int) -> None:
    weights = {"a": 1.0, "b": 2.5, "c": 0.3}
    first = mixture(weights, seed=9)
    for _ in range(before):
        task = first.next()
        first.observe(group(task, [Verdict.correct(), Verdict.incorrect("wrong")]))
    second = mixture(weights, seed=9)
    second.load_state(json.loads(json.dumps(first.state())))
    assert second.state() == first.state()
    assert [second.next().task_id for _ in range(after)] == [first.next().task_id for _ in range(after)]


def test_a_state_taken_earlier_does_not_move_on() -> None:
    mix = mixture({"a": 1.0})
    state = mix.state()
    first = mix.next()
    mix.load_state(state)
    assert mix.next() == first


def test_observing_changes_no_task() -> None:
    watched, blind = mixture({"a": 1.0, "b": 1.0}), mixture({"a": 1.0, "b": 1.0})
    for _ in range(20):
        task = watched.next()
        assert task == blind.next()
        watched.observe(group(task, [Verdict.correct()]))


def test_pass_rate_forgets_and_counts_no_attempt_without_a_verdict() -> None:
    mix = mixture({"a": 1.0, "b": 1.0})
    task = mix.next()
    assert mix.pass_rates() == {}
    mix.observe(group(task, [Verdict.correct(), Verdict.incorrect("wrong"), Verdict.none("sandbox died")]))
    assert mix.pass_rates() == {"a": 0.5}
    for _ in range(200):
        mix.observe(group(task, [Verdict.correct()]))
    assert mix.pass_rates()["a"] == pytest.approx(1.0, abs=1e-3)


def test_excluded_tasks_are_never_given_and_are_counted() -> None:
    plain = mixture({"a": 1.0})
    tasks = [plain.next() for _ in range(10)]
    without = mixture({"a": 1.0}, excluded=frozenset(task.task_id for task in tasks[2:4]))
    assert [without.next() for _ in range(8)] == tasks[:2] + tasks[4:]
    assert without.skipped() == {"a": 2}


def test_skipping_costs_a_domain_none_of_its_share() -> None:
    first_ten = frozenset(Numbers("a").task(Split.TRAIN, 0, index, 1).task_id for index in range(10))
    mix = mixture({"a": 1.0, "b": 1.0}, excluded=first_ten)
    assert [mix.next().domain for _ in range(6)] == ["a", "b"] * 3


def test_a_domain_with_nothing_but_excluded_tasks_stops_the_run_by_name() -> None:
    small = Numbers("a", size=3)
    all_three = frozenset(small.task(Split.TRAIN, 0, index, 1).task_id for index in range(3))
    mix = Stratified({"a": small}, {"a": 1.0}, {"a": 1}, 0, all_three)
    with pytest.raises(OverlapError, match="domain a gave 1000 training tasks in a row that are evaluation tasks"):
        mix.next()


@pytest.mark.parametrize(
    ("weights", "levels", "sentence"),
    [
        ({"a": 1.0}, {"a": 1, "b": 1}, "need a weight each"),
        ({"a": 1.0, "b": 1.0}, {"a": 1}, "need a level each"),
        ({"a": -1.0, "b": 1.0}, {"a": 1, "b": 1}, "weight of domain a must be at least 0"),
        ({"a": float("nan"), "b": 1.0}, {"a": 1, "b": 1}, "weight of domain a must be at least 0"),
        ({"a": 0.0, "b": 0.0}, {"a": 1, "b": 1}, "no domain of the mixture has a weight above 0"),
        ({"a": 1.0, "b": 1.0}, {"a": 1, "b": 6}, "domain b has levels 1 to 5, not 6"),
        ({"a": 1.0, "b": 1.0}, {"a": 1, "b": {1: -1.0}}, "level 1 of domain b"),
        ({"a": 1.0, "b": 1.0}, {"a": 1, "b": {}}, "no level of domain b"),
    ],
)
def test_options_that_do_not_hold_together_are_refused(
    weights: dict[str, float], levels: dict[str, int | dict[int, float]], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        Stratified({"a": Numbers("a"), "b": Numbers("b")}, weights, levels, 0)


def test_a_state_of_other_domains_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"the mixture has domains \['a'\]; its saved state has \['b'\]"):
        mixture({"a": 1.0}).load_state(mixture({"b": 1.0}).state())


def test_a_paused_domain_gives_nothing_and_the_others_share_its_turns() -> None:
    stream = mixture({"a": 2.0, "b": 1.0, "c": 1.0})
    before = [stream.next().domain for _ in range(40)]
    stream.pause({"a"})
    during = [stream.next().domain for _ in range(40)]
    stream.pause({"a"})
    state = stream.state()
    assert (before.count("a"), during.count("a")) == (20, 0)
    assert during.count("b") == during.count("c") == 20
    stream.pause(())
    after = [stream.next().domain for _ in range(40)]
    assert after.count("a") == 20, "neither made up for nor lost"

    resumed = mixture({"a": 2.0, "b": 1.0, "c": 1.0})
    resumed.load_state(state)
    resumed.pause({"a"})
    assert resumed.state() == state
    resumed.pause(())
    assert [resumed.next().domain for _ in range(40)] == after


def test_not_every_domain_can_be_paused() -> None:
    stream = mixture({"a": 1.0, "b": 1.0})
    with pytest.raises(StoppedByRuleError, match="every domain is paused: a, b"):
        stream.pause({"a", "b", "unknown"})
