"""Raw items → scores with their uncertainty and n (law L29). Pure: the same items give the same report.

What was scheduled stays in the denominator: an attempt that died is a 0 among the scores and one in `no_verdict`
(law L28). It does not sample, judge or compare.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from posttrain.core.seeding import stable_hash
from posttrain.core.types import DomainScore, EvalReport, ItemScore
from posttrain.gate.statistics import combined, mean_interval
from posttrain.gate.suite import suite_hash

SOLVED = 1.0
"""Score of an attempt that counts for pass@k; partial credit does not."""


def score_report(
    items: Sequence[ItemScore],
    *,
    label: str,
    model: str,
    version: int,
    suite_id: str,
    best_constant: Mapping[str, float],
    wall_s: float,
) -> EvalReport:
    """The report of one policy on one suite; `best_constant` has one number a domain, NaN where there is none.

    pass@1 is the mean over tasks of the mean score of a task's attempts; with partial credit it may exceed pass@k,
    which counts solved tasks. Raises ValueError where the items are not the suite's (one left out would leave the
    denominator too) or differ in their number of attempts.
    """
    by_domain: dict[str, list[ItemScore]] = {}
    for item in items:
        by_domain.setdefault(item.domain, []).append(item)
    if suite_hash(item.task_id for domain in by_domain.values() for item in domain) != suite_id:
        raise ValueError(f"the {len(items)} items of report {label} are not the tasks of suite {suite_id} in its order")
    if by_domain.keys() != best_constant.keys():
        raise ValueError(
            f"report {label} has items of {sorted(by_domain)} and best constant answers of {sorted(best_constant)}"
        )
    if len(samples := {len(item.scores) for item in items}) != 1 or 0 in samples:
        raise ValueError(f"the tasks of report {label} have {sorted(samples)} attempts; the same number is due to each")
    domains = {
        name: _domain_score(of_domain, best_constant[name], seed=stable_hash("score", suite_id, name))
        for name, of_domain in by_domain.items()
    }
    return EvalReport(
        label=label,
        model=model,
        version=version,
        suite_id=suite_id,
        domains=domains,
        mean=_mean_score(list(domains.values())),
        items=tuple(items),
        wall_s=wall_s,
    )


def _domain_score(items: Sequence[ItemScore], best_constant: float, *, seed: int) -> DomainScore:
    samples = len(items[0].scores)
    attempts = len(items) * samples
    task_means = [math.fsum(item.scores) / len(item.scores) for item in items]
    greedy = [item.greedy for item in items if item.greedy is not None]
    return DomainScore(
        pass_at_1=_mean(task_means),
        ci95=mean_interval(task_means, lowest=0.0, highest=1.0, seed=seed),
        n=len(items),
        samples=samples,
        pass_at_k=_mean([float(max(item.scores) >= SOLVED) for item in items]),
        greedy=_mean(greedy) if len(greedy) == len(items) else None,
        best_constant=best_constant,
        distinct_answers=len({answer for item in items for answer in item.answers if answer is not None}),
        no_verdict=sum(item.failures for item in items),
        mean_tokens=sum(item.num_tokens for item in items) / attempts,
        truncated_share=sum(item.truncated for item in items) / attempts,
    )


def _mean_score(scores: Sequence[DomainScore]) -> DomainScore:
    """Over domains that weigh equally; counts are sums, `best_constant` is NaN where a domain has none."""
    pass_at_1, ci95 = combined([score.pass_at_1 for score in scores], [score.ci95 for score in scores])
    greedy = [score.greedy for score in scores if score.greedy is not None]
    return DomainScore(
        pass_at_1=pass_at_1,
        ci95=ci95,
        n=sum(score.n for score in scores),
        samples=scores[0].samples,
        pass_at_k=_mean([score.pass_at_k for score in scores]),
        greedy=_mean(greedy) if len(greedy) == len(scores) else None,
        best_constant=_mean([score.best_constant for score in scores]),
        distinct_answers=sum(score.distinct_answers for score in scores),
        no_verdict=sum(score.no_verdict for score in scores),
        mean_tokens=_mean([score.mean_tokens for score in scores]),
        truncated_share=_mean([score.truncated_share for score in scores]),
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
