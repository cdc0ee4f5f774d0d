"""Reports made by hand: `{domain: [[attempt scores] per task]}`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from posttrain.core.types import EvalReport, ItemScore
from posttrain.gate.score import score_report
from posttrain.gate.suite import suite_hash

Scores = Mapping[str, Sequence[Sequence[float]]]


def report(scores: Scores, label: str = "base", failures: Mapping[str, int] | None = None) -> EvalReport:
    """`failures`: attempts without a verdict, by domain, all at its first task."""
    items = [
        ItemScore(domain, f"{domain}-{number}", tuple(map(float, attempts)), None, (), 0, 0, 0)
        for domain, tasks in scores.items()
        for number, attempts in enumerate(tasks)
    ]
    first = {item.domain: item.task_id for item in reversed(items)}
    items = [
        ItemScore(i.domain, i.task_id, i.scores, None, (), (failures or {}).get(i.domain, 0), 0, 0)
        if first[i.domain] == i.task_id
        else i
        for i in items
    ]
    return score_report(
        items,
        label=label,
        model="m",
        version=0,
        suite_id=suite_hash(item.task_id for item in items),
        best_constant=dict.fromkeys(scores, 0.0),
        wall_s=0.0,
    )


def drawn(changes: Mapping[str, float], *, n: int = 128, samples: int = 4, seed: int = 0) -> tuple[Scores, Scores]:
    """Scores before and after, of domains whose pass rates change by so much; abilities differ between tasks."""
    rng = np.random.default_rng(seed)
    before, after = {}, {}
    for domain, change in changes.items():
        ability = 0.2 + 0.6 * rng.beta(1, 1, n)
        before[domain] = (rng.random((n, samples)) < ability[:, None]).astype(float).tolist()
        after[domain] = (rng.random((n, samples)) < np.clip(ability + change, 0, 1)[:, None]).astype(float).tolist()
    return before, after
