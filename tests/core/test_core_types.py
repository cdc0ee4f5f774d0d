"""The records: what they refuse, what they derive."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from posttrain.core.types import (
    Boundary,
    Failure,
    Limits,
    Message,
    Reward,
    Role,
    Sample,
    Split,
    StopReason,
    Task,
    Trajectory,
    Verdict,
    VerdictStatus,
)


def make_task(text: str = "2 + 3", **fields: Any) -> Task:
    values: dict[str, Any] = {
        "domain": "arithmetic",
        "prompt": (Message(Role.USER, text),),
        "hidden": {},
        "split": Split.TRAIN,
        "seed": 0,
        "index": 0,
        "level": 1,
    }
    return Task(**{**values, **fields})


def make_trajectory(sampled: list[bool], **fields: Any) -> Trajectory:
    length = len(sampled)
    values: dict[str, Any] = {
        "trajectory_id": "t",
        "task": make_task(),
        "group_id": "g",
        "sibling": 0,
        "tokens": np.arange(length, dtype=np.int32),
        "sampled": np.asarray(sampled, dtype=np.bool_),
        "behavior_logprobs": np.zeros(length, dtype=np.float32),
        "versions": np.zeros(length, dtype=np.int32),
        "turns": (),
        "reply": "5",
        "stop": StopReason.STOP,
    }
    return Trajectory(**{**values, **fields})


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), float("inf")])
def test_no_score_and_no_part_of_a_verdict_leaves_its_range(value: float) -> None:
    with pytest.raises(ValueError, match="score must lie"):
        Verdict(VerdictStatus.CORRECT, value)
    with pytest.raises(ValueError, match="part 'process' must lie"):
        Verdict.correct(parts={"process": value})


def make_sample(trainable: list[bool], **fields: Any) -> Sample:
    length = len(trainable)
    values: dict[str, Any] = {
        "trajectory_id": "t",
        "segment": 0,
        "group_id": "g",
        "domain": "arithmetic",
        "tokens": np.zeros(length, dtype=np.int32),
        "trainable": np.asarray(trainable, dtype=np.bool_),
        "behavior_logprobs": np.zeros(length, dtype=np.float32),
        "advantages": np.zeros(length, dtype=np.float32),
        "loss_weights": np.ones(length, dtype=np.float32),
        "versions": np.zeros(length, dtype=np.int32),
    }
    return Sample(**{**values, **fields})


# ── tasks ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_task_id_is_of_content_and_not_of_its_place() -> None:
    task = make_task()
    elsewhere = make_task(split=Split.EVAL, seed=5, index=9, level=3, hidden={"answer": 5}, limits=Limits(timeout_s=1))
    assert task.task_id == elsewhere.task_id
    assert len(task.task_id) == 32


def test_task_id_tells_domains_texts_roles_and_message_borders_apart() -> None:
    variants = [
        make_task(),
        make_task("2 + 4"),
        make_task(domain="words"),
        make_task(prompt=(Message(Role.SYSTEM, "2 + 3"),)),
        make_task(prompt=(Message(Role.USER, "2 +"), Message(Role.USER, " 3"))),
    ]
    assert len({task.task_id for task in variants}) == len(variants)


def test_tasks_of_one_content_key_are_the_same_problem_in_other_words() -> None:
    assert make_task("3 + 2", content_key="2+3").task_id == make_task("2 + 3", content_key="2+3").task_id
    assert make_task(content_key="2+3").task_id != make_task(content_key="2+4").task_id


def test_task_id_is_the_same_for_ever() -> None:
    assert make_task().task_id == "6b1a212fbc4c18d7e4feb5558ce2a4d1"


# ── verdicts and rewards ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("score", [-0.01, 1.01, math.nan, math.inf, -math.inf])
def test_verdict_refuses_a_score_that_is_none(score: float) -> None:
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\]"):
        Verdict(VerdictStatus.CORRECT, score)


def test_verdict_constructors_agree_with_their_names() -> None:
    assert (Verdict.correct().status, Verdict.correct().score) == (VerdictStatus.CORRECT, 1.0)
    wrong = Verdict.incorrect("no answer", answer=None, flags=("several_answers",))
    assert (wrong.status, wrong.score, wrong.reason) == (VerdictStatus.INCORRECT, 0.0, "no answer")
    assert Verdict.none("sandbox gone").status is VerdictStatus.NO_VERDICT


def test_records_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Verdict.correct().score = 0.5  # type: ignore[misc]


@pytest.mark.parametrize(
    ("stop", "truncated"),
    [
        (StopReason.STOP, False),
        (StopReason.MAX_NEW_TOKENS, True),
        (StopReason.MAX_TURNS, False),
        (StopReason.MAX_CONTEXT, True),
        (StopReason.ABORTED, False),
    ],
)
def test_truncated_means_the_policy_was_cut_off(stop: StopReason, truncated: bool) -> None:
    assert stop.truncated is truncated


# ── trajectories ──────────────────────────────────────────────────────────────────────────────────────────────


def test_only_a_rewarded_attempt_with_a_verdict_and_no_failure_is_scored() -> None:
    judged: dict[str, Any] = {"verdict": Verdict.incorrect("wrong"), "reward": Reward(0.0)}
    assert make_trajectory([False, True], **judged).scored
    without: list[dict[str, Any]] = [
        {"verdict": None},
        {"reward": None},
        {"verdict": Verdict.none("the verifier died")},
        {"failure": Failure(Boundary.SANDBOX, "gone")},
    ]
    for missing in without:
        assert not make_trajectory([False, True], **{**judged, **missing}).scored


@pytest.mark.parametrize(
    ("sampled", "prompt_length"),
    [([False, False, True, False, True], 2), ([True, True], 0), ([False, False], 2), ([], 0)],
)
def test_prompt_ends_where_sampling_begins(sampled: list[bool], prompt_length: int) -> None:
    assert make_trajectory(sampled).prompt_length == prompt_length


# ── samples ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_sample_counts_the_tokens_it_trains() -> None:
    assert make_sample([False, True, True]).num_loss_tokens == 2
    assert make_sample([]).num_loss_tokens == 0


def test_first_token_of_a_sample_cannot_be_trained() -> None:
    with pytest.raises(ValueError, match="first token cannot be trained"):
        make_sample([True, False])
