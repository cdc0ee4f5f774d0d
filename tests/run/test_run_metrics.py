from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import torch

from posttrain.core.protocols import StepMetrics
from posttrain.core.rules import Rule, evaluate
from posttrain.core.sandboxing import ResultClass
from posttrain.core.types import (
    Boundary,
    Cost,
    Failure,
    Group,
    Message,
    Reward,
    Role,
    Split,
    StopReason,
    Task,
    Trajectory,
    Turn,
    Verdict,
)
from posttrain.gate.agreement import Estimate
from posttrain.gate.review import VerifierReview
from posttrain.learn.objective import Objective
from posttrain.learn.samples import to_samples
from posttrain.losses.base import LossInputs
from posttrain.observe.alarms import alarms
from posttrain.run.audited import audit_values
from posttrain.run.collapse import DEFAULT_RULES
from posttrain.run.defence import inspection_values, quarantine_values
from posttrain.run.drift import drift_values
from posttrain.run.health import Health
from posttrain.run.metrics import sandbox_values, step_values
from posttrain.sandbox.local import LocalSandbox
from posttrain.sandbox.scripted import ScriptedSandbox
from posttrain.store.metrics import MetricsRecord
from posttrain.verifiers.detect.attempts import with_held_out


def group(domain: str, index: int, *attempts: tuple[float, str], stop: StopReason = StopReason.STOP) -> Group:
    """Each attempt a (score, answer), four sampled tokens behind two of prompt."""
    task = Task(domain, (Message(Role.USER, f"{domain} {index}"),), {}, Split.TRAIN, seed=0, index=index, level=1)
    name = f"{domain}{index}"
    sampled = np.arange(6) >= 2
    trajectories = tuple(
        Trajectory(
            trajectory_id=f"{name}/{sibling}",
            task=task,
            group_id=name,
            sibling=sibling,
            tokens=np.arange(6, dtype=np.int32),
            sampled=sampled,
            behavior_logprobs=np.where(sampled, -0.5, 0.0).astype(np.float32),
            versions=np.where(sampled, 0, -1).astype(np.int32),
            turns=(Turn(2, 6),),
            reply="",
            stop=stop,
            verdict=Verdict.correct(answer=answer) if score == 1.0 else Verdict.incorrect("wrong", answer=answer),
            reward=Reward(score),
            cost=Cost(num_sampled_tokens=4),
        )
        for sibling, (score, answer) in enumerate(attempts)
    )
    return Group(name, task, trajectories)


def lost(given: Group) -> Group:
    """The same with its last attempt lost through a failure of ours."""
    *others, last = given.trajectories
    failure = Failure(Boundary.SANDBOX, "gone")
    gone = dataclasses.replace(last, verdict=None, reward=None, failure=failure)
    return dataclasses.replace(given, trajectories=(*others, gone))


def values_of(groups: Sequence[Group]) -> dict[str, float]:
    credit = [[np.zeros(len(t.tokens), np.float32) for t in one.trajectories] for one in groups]
    metrics = StepMetrics(0.1, 1.0, 1e-5, 8, 10, learner_means(), 0.5)
    return step_values(groups, metrics, to_samples(groups, credit), staleness=0, seconds={"generate_s": 2.0})


def learner_means() -> dict[str, float]:
    """Under the names that a stage's losses give; each is 1."""
    token = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    fixed = torch.zeros(1, dtype=torch.float64)
    inputs = LossInputs(
        token, fixed, fixed, torch.zeros(1, dtype=torch.int64), 1, reference_logprobs=fixed, entropy=fixed
    )
    terms = Objective.build([{"name": "clipped_policy_gradient"}, {"name": "kl_penalty"}]).terms(inputs, {})
    return dict.fromkeys([*terms.terms, *terms.metrics, *terms.maxima], 1.0)


def test_a_step_counts_attempts_and_averages_the_scored_ones() -> None:
    values = values_of([group("words", 0, (1.0, "a"), (0.0, "b")), lost(group("words", 1, (1.0, "c"), (0.0, "d")))])
    assert values["num_attempts"] == 4.0
    assert values["num_sampled_tokens"] == 16.0
    assert values["tokens_per_s"] == 8.0
    assert values["no_verdict"] == 1.0
    assert values["reward"] == values["pass/words"] == 2 / 3


def test_what_cannot_be_computed_is_left_out() -> None:
    values = values_of([lost(group("words", 0, (1.0, "a")))])
    assert not {"reward", "pass_rate", "reward/words", "reward_spread", "answer_entropy/words"} & values.keys()


def test_each_domain_has_its_own_answers() -> None:
    constant = [group("yes", index, (1.0, "y"), (1.0, "y")) for index in range(2)]
    varied = [group("words", index, (1.0, f"{index}"), (0.0, f"{index}x")) for index in range(2)]
    values = values_of([*constant, *varied])
    assert (values["constant_share/yes"], values["constant_score/yes"], values["answer_entropy/yes"]) == (1.0, 1.0, 0.0)
    assert (values["constant_share/words"], values["answer_entropy/words"]) == (0.0, 1.0)
    assert values["reward_spread"] == 0.25
    assert values["repetition"] == 0.0


def test_every_rule_reads_what_a_step_records() -> None:
    groups = [group("words", index, (1.0, "a"), (0.0, "b")) for index in range(2)]
    parts = {"visible_tests": 1.0, "hidden_tests": 0.0}
    attempts = [
        with_held_out(dataclasses.replace(t, verdict=Verdict.correct(parts=parts)), Verdict.incorrect("no"))
        for one in groups
        for t in one.trajectories
    ]
    step = {**values_of(groups), **inspection_values(attempts), **quarantine_values(attempts)}
    found = VerifierReview("words", "1", 9, 9, 0, 0, Estimate(0.5, (0.2, 0.8), 9, 1.0), None)
    recorded = {**step, **drift_values([step] * 6), **audit_values(found, 0.9)}
    for rule in DEFAULT_RULES:
        assert list(rule.watched(recorded)), f"rule {rule.name} watches {rule.metric}, which no step records"


def test_every_alarm_reads_what_a_step_records() -> None:
    recorded = {
        **values_of([group("words", index, (1.0, "a"), (0.0, "b")) for index in range(2)]),
        **Health([]).values(),
    }
    sentences = alarms([MetricsRecord(0, "rl", 1, 0.0, dict.fromkeys(recorded, 1.0))], [])
    for part in ("got no verdict", "earlier checkpoint", "sampler and trainer", "no signal", "cut off"):
        assert any(part in sentence for sentence in sentences), part
    broken = alarms([MetricsRecord(0, "rl", 1, 0.0, dict.fromkeys(recorded, float("nan")))], [])
    assert [sentence.split()[0] for sentence in broken] == ["loss", "grad_norm", "reward"]


def test_a_policy_that_collapsed_to_one_answer_is_found_from_its_groups() -> None:
    waves = [[group("words", 2 * step + index, (0.0, "a"), (0.0, "a")) for index in range(2)] for step in range(10)]
    history = [MetricsRecord(0, "rl", step, 0.0, values_of(groups)) for step, groups in enumerate(waves, start=1)]
    rules: list[Rule] = [rule for rule in DEFAULT_RULES if rule.name in ("constant_answer", "answers_alike")]
    assert {firing.rule.name for firing in evaluate(rules, history)} == {"constant_answer", "answers_alike"}


def test_a_step_says_how_the_sandbox_keeps_up() -> None:
    sandbox = LocalSandbox()
    assert sandbox_values(sandbox) == {}  # nothing has run
    record = sandbox._pool.record
    with record.waiting(), record.running():
        record.ended(ResultClass.OK)
    record.ended(ResultClass.INFRASTRUCTURE_ERROR)
    record.retried()
    values = sandbox_values(sandbox)
    assert values.keys() >= {"sandbox_queue_s", "sandbox_run_s"}
    assert 0 < values["sandbox_run_s"] < values["sandbox_queue_s"]
    assert (values["sandbox_executions"], values["sandbox_faults"], values["sandbox_retries"]) == (2, 1, 1)
    assert values["sandbox_leaks"] == 0


def test_a_step_without_a_sandbox_that_counts_says_nothing_of_it() -> None:
    assert sandbox_values(None) == {}
    assert sandbox_values(ScriptedSandbox()) == {}
