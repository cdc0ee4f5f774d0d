"""How varied a step's attempts are: rewards within groups, final answers across tasks, the tokens themselves.

A policy that has found the right answer gives it to all siblings of a task; a collapsed one gives it to all tasks.
So answers are compared between tasks: agreement within a group is no bad sign. It judges nothing: rules over the
recorded numbers do (`run/health.py`).
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from posttrain.core.types import BoolArray, Group, IntArray, Trajectory

Answers = dict[str, list[tuple[str | None, float]]]
"""By task: each scored attempt's final answer and score."""


@dataclass(frozen=True)
class AnswerStatistics:
    """Of one domain's final answers in one step."""

    entropy: float
    """Of the distribution of answers, over its largest possible value: 0, one answer to everything; 1, no two alike."""
    constant_share: float
    """Of attempts that give the answer which the *other* tasks' attempts give most often: 1 is a constant policy."""
    constant_score: float
    """What that answer scores, over the tasks; where nobody tried it, it counts 0. So it is a lower bound, and the
    score of the constant answer itself for a policy that gives nothing else."""


def reward_spread(groups: Sequence[Group]) -> float | None:
    """Standard deviation of the rewards within a group, in the mean over groups with two scored attempts or more."""
    rewards = [[t.reward.total for t in group.trajectories if t.scored and t.reward is not None] for group in groups]
    spreads = [statistics.pstdev(rewards_G) for rewards_G in rewards if len(rewards_G) > 1]  # exact: 0 is 0 (law L7)
    return math.fsum(spreads) / len(spreads) if spreads else None


def answer_statistics(trajectories: Sequence[Trajectory]) -> AnswerStatistics | None:
    """Of one domain's judged attempts; "no answer was found" is an answer too.

    None where fewer than two tasks were tried, or where no attempt has an answer (the domain names none).
    """
    answers: Answers = defaultdict(list)
    for trajectory in trajectories:
        assert trajectory.judged, trajectory.trajectory_id
        assert trajectory.verdict is not None
        answers[trajectory.task.task_id].append((trajectory.verdict.answer, trajectory.verdict.score))
    counts = Counter(answer for attempts in answers.values() for answer, _ in attempts)
    if len(answers) < 2 or set(counts) == {None}:
        return None
    share, score = _constant(answers, counts)
    return AnswerStatistics(_entropy(counts), share, score)


def repetition(trajectories: Sequence[Trajectory], length: int = 4) -> float | None:
    """Share of sampled n-grams of tokens that the same attempt had before: 1 − distinct / all, over all attempts.

    None where no attempt is `length` tokens long.
    """
    counts = [_grams(trajectory.tokens, trajectory.sampled, length) for trajectory in trajectories]
    total = sum(number for number, _ in counts)
    return 1.0 - sum(distinct for _, distinct in counts) / total if total else None


def _entropy(counts: Counter[str | None]) -> float:
    total = counts.total()
    entropy = -math.fsum(count / total * math.log(count / total) for count in counts.values())
    return max(0.0, entropy) / math.log(total)


def _constant(answers: Answers, counts: Counter[str | None]) -> tuple[float, float]:
    """`(share, score)` of the answer that does not know its task: for each task, the others' most frequent one."""
    given = 0
    scores = []
    for attempts in answers.values():
        others = counts - Counter(answer for answer, _ in attempts)
        constant = min(others, key=lambda answer: (-others[answer], answer is not None, answer or ""))
        own = [score for answer, score in attempts if answer == constant]
        given += len(own)
        scores.append(math.fsum(own) / len(own) if own else 0.0)
    return given / counts.total(), math.fsum(scores) / len(scores)


def _grams(tokens: IntArray, sampled: BoolArray, length: int) -> tuple[int, int]:
    """`(all, distinct)` windows of `length` sampled tokens that stand side by side."""
    count = len(tokens) - length + 1
    if count < 1:
        return 0, 0
    keys = np.zeros(count, np.int64)
    whole = np.ones(count, np.bool_)
    for offset in range(length):
        _, ranks = np.unique(tokens[offset : offset + count], return_inverse=True)
        # Each key names a prefix exactly; ranked anew, keys stay below count², whatever the vocabulary's size.
        _, keys = np.unique(keys * count + ranks, return_inverse=True)
        whole &= sampled[offset : offset + count]
    return int(whole.sum()), len(np.unique(keys[whole]))
