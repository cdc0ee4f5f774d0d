from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.core.types import Group, Message, Reward, Role, Split, StopReason, Task, Trajectory, Turn, Verdict
from posttrain.run.diversity import AnswerStatistics, answer_statistics, repetition, reward_spread


def task(number: int) -> Task:
    return Task("words", (Message(Role.USER, f"task {number}"),), {}, Split.TRAIN, seed=0, index=number, level=1)


def attempt(
    of: Task, sibling: int, score: float, answer: str | None = None, tokens: Sequence[int] = (), prompt: int = 0
) -> Trajectory:
    sampled = np.arange(len(tokens)) >= prompt
    return Trajectory(
        trajectory_id=f"{of.index}/{sibling}",
        task=of,
        group_id=f"g{of.index}",
        sibling=sibling,
        tokens=np.asarray(tokens, np.int32),
        sampled=sampled,
        behavior_logprobs=np.where(sampled, -0.1, 0.0).astype(np.float32),
        versions=np.where(sampled, 0, -1).astype(np.int32),
        turns=(Turn(prompt, len(tokens)),),
        reply="",
        stop=StopReason.STOP,
        verdict=Verdict.correct(answer=answer) if score == 1.0 else Verdict.incorrect("wrong", answer=answer),
        reward=Reward(score),
    )


def answers(*groups: Sequence[tuple[str | None, float]]) -> AnswerStatistics | None:
    """Each group one task's (answer, score) pairs."""
    return answer_statistics(
        [
            attempt(task(n), s, score, answer)
            for n, group in enumerate(groups)
            for s, (answer, score) in enumerate(group)
        ]
    )


def group(number: int, *scores: float) -> Group:
    of = task(number)
    return Group(f"g{number}", of, tuple(attempt(of, sibling, score) for sibling, score in enumerate(scores)))


def test_spread_is_that_of_siblings_not_of_tasks() -> None:
    assert reward_spread([group(0, 1.0, 1.0), group(1, 0.0, 0.0)]) == 0.0
    assert reward_spread([group(0, 1.0, 0.0), group(1, 0.0, 0.0), group(2, 1.0)]) == 0.25
    assert reward_spread([group(0, 0.1, 0.1, 0.1)]) == 0.0  # exactly (law L7)
    assert reward_spread([group(0, 1.0)]) is None


def test_a_policy_that_has_converged_on_right_answers_is_not_constant() -> None:
    found = answers(*([(str(number), 1.0)] * 8 for number in range(4)))
    assert found is not None
    assert (found.constant_share, found.constant_score) == (0.0, 0.0)
    assert found.entropy == pytest.approx(math.log(4) / math.log(32))


def test_a_policy_with_one_answer_is_constant_and_scores_what_the_answer_scores() -> None:
    found = answers([("yes", 1.0)] * 4, [("yes", 0.0)] * 4)
    assert found == AnswerStatistics(entropy=0.0, constant_share=1.0, constant_score=0.5)


def test_a_policy_that_never_answers_is_constant_where_it_once_did() -> None:
    found = answers([(None, 0.0)] * 4, [(None, 0.0), (None, 0.0), (None, 0.0), ("7", 1.0)])
    assert found is not None
    assert (found.constant_share, found.constant_score) == (7 / 8, 0.0)
    assert answers([(None, 0.0)] * 4, [(None, 1.0)] * 4) is None  # the domain names no answers


def test_one_task_alone_says_nothing_about_answers() -> None:
    assert answers([("4", 1.0)] * 8) is None


@settings(deadline=None, max_examples=50)
@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from([0.0, 1.0])), min_size=1), min_size=2
    )
)
def test_answer_statistics_are_shares_whatever_the_order(groups: list[list[tuple[str | None, float]]]) -> None:
    found = answers(*groups)
    if found is not None:
        assert all(0.0 <= value <= 1.0 for value in (found.entropy, found.constant_share, found.constant_score))
        again = answers(*(list(reversed(pairs)) for pairs in groups))
        assert again is not None
        assert (found.constant_share, found.constant_score) == (again.constant_share, again.constant_score)


def test_repetition_counts_what_the_attempt_had_before() -> None:
    of = task(0)
    loop, fresh = attempt(of, 0, 0.0, tokens=[5] * 8), attempt(of, 1, 0.0, tokens=range(8))
    assert repetition([loop]) == pytest.approx(1 - 1 / 5)
    assert repetition([fresh]) == 0.0
    assert repetition([fresh, fresh]) == 0.0  # siblings may say the same
    assert repetition([loop, fresh]) == pytest.approx(1 - 6 / 10)
    assert repetition([attempt(of, 0, 0.0, tokens=[1, 2, 3])]) is None


def test_tokens_that_were_not_sampled_repeat_nothing() -> None:
    of = task(0)
    assert repetition([attempt(of, 0, 0.0, tokens=[7] * 20 + [1, 2, 3, 4], prompt=20)]) == 0.0


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from([0, 1, 2, 150_000]), st.booleans()), max_size=30).map(
        lambda pairs: (np.array([t for t, _ in pairs], np.int32), np.array([s for _, s in pairs], np.bool_))
    ),
    st.integers(1, 4),
)
def test_repetition_is_the_count_of_distinct_windows(stream: tuple[np.ndarray, np.ndarray], length: int) -> None:
    tokens, sampled = stream
    zeros = np.zeros(len(tokens), np.float32)
    of = task(0)
    trajectory = Trajectory(
        "t", of, "g", 0, tokens, sampled, zeros, np.zeros(len(tokens), np.int32), (), "", StopReason.STOP
    )
    windows = [
        tuple(tokens[start : start + length].tolist())
        for start in range(len(tokens) - length + 1)
        if sampled[start : start + length].all()
    ]
    expected = 1 - len(set(windows)) / len(windows) if windows else None
    assert repetition([trajectory], length) == (pytest.approx(expected) if windows else None)


def test_chained_ranks_tell_windows_apart() -> None:
    """Every window of four over three letters once: all are distinct."""
    stream = [token for window in itertools.product(range(3), repeat=4) for token in window]
    windows = {tuple(stream[start : start + 4]) for start in range(len(stream) - 3)}
    found = repetition([attempt(task(0), 0, 0.0, tokens=stream)])
    assert found == pytest.approx(1 - len(windows) / (len(stream) - 3))
