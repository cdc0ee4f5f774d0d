"""Reductions: what Σ loss weight · term / Σ weight comes to, for terms that differ from token to token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rewards.parts import NOTHING, attempt, component, group, siblings, task

from posttrain.core.types import Group, Limits, Sample, StopReason
from posttrain.learn.samples import demonstration_sample, sample_of, to_samples

LENGTHS = [[3], [1, 2], [5], [2]]


def rows(*groups: Group, **options: Any) -> list[Sample]:
    return to_samples(groups, component("group_mean")(groups, NOTHING), **options).samples


def terms_of(sample: Sample) -> np.ndarray:
    """Any term: another for every token of every sample, NaN where nothing is trained."""
    values = 10.0 * int(sample.trajectory_id.rpartition("/")[2]) + np.arange(len(sample.tokens))
    return np.where(sample.trainable, values, np.nan)


def loss(samples: Sequence[Sample]) -> float:
    """As the trainer does it (law L2): one numerator, one denominator, both over trainable tokens."""
    numerator = sum(float((s.loss_weights * terms_of(s))[s.trainable].sum()) for s in samples)
    return numerator / sum(s.weight for s in samples)


def trained(samples: Sequence[Sample]) -> list[np.ndarray]:
    return [terms_of(sample)[sample.trainable] for sample in samples]


def test_token_mean_is_the_mean_over_all_tokens() -> None:
    samples = rows(siblings([1.0, 0.0, 0.5, 0.2], LENGTHS))
    assert loss(samples) == pytest.approx(np.concatenate(trained(samples)).mean())
    assert [s.weight for s in samples] == [3, 3, 5, 2]


def test_sequence_mean_is_the_mean_of_the_attempts_means() -> None:
    samples = rows(siblings([1.0, 0.0, 0.5, 0.2], LENGTHS), reduction="sequence_mean")
    assert loss(samples) == pytest.approx(np.mean([terms.mean() for terms in trained(samples)]), rel=1e-6)
    assert [s.weight for s in samples] == [1, 1, 1, 1]


def test_fixed_length_is_the_mean_of_the_attempts_sums_over_a_constant() -> None:
    samples = rows(siblings([1.0, 0.0, 0.5, 0.2], LENGTHS), reduction="fixed_length", fixed_length_tokens=7)
    assert loss(samples) == pytest.approx(np.mean([terms.sum() / 7 for terms in trained(samples)]), rel=1e-6)


def test_fixed_length_of_zero_is_what_the_task_allows() -> None:
    at = task(limits=Limits(max_new_tokens=25, max_turns=4))
    tried = [attempt(reward, [2], name=f"g/{i}", at=at) for i, reward in enumerate((1.0, 0.0))]
    for sample in rows(group(*tried), reduction="fixed_length"):
        assert sample.loss_weights.tolist() == pytest.approx([0.01] * 4)


@settings(max_examples=30, deadline=None)
@given(lengths=st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=3), min_size=2, max_size=5))
def test_reductions_agree_where_all_attempts_are_of_one_length(lengths: list[list[int]]) -> None:
    equal = [[1 + sum(lengths[0])]] * len(lengths)
    groups = siblings([float(i) for i in range(len(lengths))], equal)
    token_mean = loss(rows(groups))
    assert loss(rows(groups, reduction="sequence_mean")) == pytest.approx(token_mean, rel=1e-6)
    fixed = rows(groups, reduction="fixed_length", fixed_length_tokens=equal[0][0])
    assert loss(fixed) == pytest.approx(token_mean, rel=1e-6)


@pytest.mark.parametrize("reduction", ["token_mean", "sequence_mean", "fixed_length"])
def test_what_is_left_out_is_in_no_denominator(reduction: str) -> None:
    """Law L2: attempts masked or without a verdict, and silent groups unless they are kept."""
    cut = attempt(0.25, [4], name="g/2", stop=StopReason.MAX_NEW_TOKENS)
    some = group(attempt(1.0, [3], name="g/0"), attempt(0.0, [2], name="g/1"), cut, attempt(None, name="g/3"))
    silent = siblings([0.5, 0.5], [[6], [6]], name="h", index=1)
    expected = {"token_mean": 5, "sequence_mean": 2, "fixed_length": 2}[reduction]
    options: dict[str, Any] = {"reduction": reduction, "truncated": "mask"}
    assert sum(s.weight for s in rows(some, silent, **options)) == expected
    kept = rows(some, silent, silent_groups="keep", **options)
    assert sum(s.weight for s in kept) == expected + {"token_mean": 12}.get(reduction, 2)


@pytest.mark.parametrize("reduction", ["token_mean", "sequence_mean", "fixed_length"])
def test_attempt_without_a_token_weighs_nothing(reduction: str) -> None:
    pair = group(attempt(1.0, [2], name="g/0"), attempt(0.0, [0], name="g/1"))
    weights = [s.weight for s in rows(pair, reduction=reduction)]
    assert weights == [2 if reduction == "token_mean" else 1, 0]


def test_row_to_ask_the_models_about_is_the_attempt_without_credit() -> None:
    tried = attempt(1.0, [2, 1])
    sample = sample_of(tried, temperature=0.6)
    assert sample.tokens is tried.tokens
    assert sample.trainable is tried.sampled
    assert sample.temperature == 0.6
    assert not sample.advantages.any()


def test_demonstration_weighs_each_token_alike() -> None:
    mask = np.asarray([False, True, False, True])
    sample = demonstration_sample("d", "toy", np.arange(4, dtype=np.int32), mask)
    assert sample.weight == 2
    assert sample.trainable.tolist() == mask.tolist()
    assert sample.versions.tolist() == [-1] * 4


def test_prompt_of_a_demonstration_weighs_what_it_is_given_and_its_first_token_nothing() -> None:
    mask = np.asarray([False, False, True, True])
    sample = demonstration_sample("d", "toy", np.arange(4, dtype=np.int32), mask, prompt_loss_weight=0.5)
    assert sample.trainable.tolist() == [False, True, True, True]
    assert sample.loss_weights[1:].tolist() == [0.5, 1.0, 1.0]
    assert sample.weight == 2.5
