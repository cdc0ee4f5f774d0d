"""One step's record: what the groups, the credit and the learner say, under stable names.

Means are over the attempts or tokens that the name says; a value that cannot be computed is left out, not zero.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from posttrain.core.protocols import Sandbox, StepMetrics
from posttrain.core.sandbox_status import HasFigures
from posttrain.core.sandboxing import ResultClass
from posttrain.core.types import Group, Trajectory
from posttrain.learn.samples import Selection
from posttrain.run.diversity import answer_statistics, repetition, reward_spread


def step_values(
    groups: Sequence[Group],
    metrics: StepMetrics,
    selection: Selection,
    *,
    staleness: int,
    seconds: Mapping[str, float],
) -> dict[str, float]:
    """Values of one RL step for `metrics.jsonl` and the progress line."""
    attempts = [trajectory for group in groups for trajectory in group.trajectories]
    num_tokens = sum(trajectory.cost.num_sampled_tokens for trajectory in attempts)
    values = {
        **learner_values(metrics),
        "num_attempts": float(len(attempts)),
        "num_sampled_tokens": float(num_tokens),
        "mean_tokens": num_tokens / max(1, len(attempts)),
        "truncated_share": _share(attempts, [t.stop.truncated for t in attempts]),
        "no_verdict": float(sum(not t.judged for t in attempts)),
        "zero_signal_share": selection.num_groups_without_signal / max(1, len(groups)),
        "masked_truncated": float(selection.num_masked_truncated),
        "distinct_answers": float(len({t.verdict.answer for t in attempts if t.verdict is not None})),
        "staleness_max": float(staleness),
        **{f"time/{name}": value for name, value in seconds.items()},
    }
    if seconds.get("generate_s"):
        values["tokens_per_s"] = num_tokens / seconds["generate_s"]
    scored: dict[str, list[Trajectory]] = defaultdict(list)  # quarantined ones too: the curve is what the verifier says
    for trajectory in attempts:
        if trajectory.judged:
            scored[trajectory.task.domain].append(trajectory)
    everything = [trajectory for domain in scored.values() for trajectory in domain]
    if everything:
        values["reward"] = _reward(everything)
        values["pass_rate"] = _pass_rate(everything)
    for domain, trajectories in sorted(scored.items()):
        values[f"reward/{domain}"] = _reward(trajectories)
        values[f"pass/{domain}"] = _pass_rate(trajectories)
    return {**values, **_diversity(groups, scored)}


def _diversity(groups: Sequence[Group], scored: Mapping[str, Sequence[Trajectory]]) -> dict[str, float]:
    """Signs of collapse in what was sampled; `scored` by domain."""
    attempts = [trajectory for group in groups for trajectory in group.trajectories]
    found = {"reward_spread": reward_spread(groups), "repetition": repetition(attempts)}
    values = {name: value for name, value in found.items() if value is not None}
    for domain, trajectories in sorted(scored.items()):
        statistics = answer_statistics(trajectories)
        if statistics is not None:
            values[f"answer_entropy/{domain}"] = statistics.entropy
            values[f"constant_share/{domain}"] = statistics.constant_share
            values[f"constant_score/{domain}"] = statistics.constant_score
    return values


def learner_values(metrics: StepMetrics) -> dict[str, float]:
    """The learner's part of a step's record."""
    return {
        **metrics.values,
        "loss": metrics.loss,
        "grad_norm": metrics.grad_norm,
        "learning_rate": metrics.learning_rate,
        "num_loss_tokens": float(metrics.num_loss_tokens),
        "num_computed_tokens": float(metrics.num_computed_tokens),
        "learner_s": metrics.wall_s,
    }


def sandbox_values(sandbox: Sandbox | None) -> dict[str, float]:
    """How the sandbox keeps up: seconds are the 90th percentile of its last executions, counts are since the start.
    Nothing for one that does not count, or that has not run anything."""
    if not isinstance(sandbox, HasFigures):
        return {}
    figures = sandbox.figures()
    if not figures.ended:
        return {}
    return {
        "sandbox_queue_s": figures.wait_s.p90,
        "sandbox_run_s": figures.run_s.p90,
        "sandbox_executions": float(sum(figures.ended.values())),
        "sandbox_retries": float(figures.retries),
        "sandbox_faults": float(figures.ended.get(ResultClass.INFRASTRUCTURE_ERROR, 0)),
        "sandbox_leaks": float(figures.leaked_slots + figures.leaked_cgroups),
    }


def _reward(trajectories: Sequence[Trajectory]) -> float:
    return float(np.mean([t.reward.total for t in trajectories if t.reward is not None]))


def _pass_rate(trajectories: Sequence[Trajectory]) -> float:
    return float(np.mean([t.verdict.score for t in trajectories if t.verdict is not None]))


def _share(attempts: Sequence[Trajectory], flags: Sequence[bool]) -> float:
    return sum(flags) / max(1, len(attempts))
