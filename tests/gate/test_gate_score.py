"""From items to a report."""

from __future__ import annotations

import dataclasses
import math

import pytest

from posttrain.core.types import EvalReport, ItemScore
from posttrain.gate.score import score_report
from posttrain.gate.suite import suite_hash


def item(domain: str, number: int, *scores: float, **fields: object) -> ItemScore:
    plain = ItemScore(domain, f"{domain}-{number}", scores, None, (None,) * len(scores), 0, 0, 0)
    return dataclasses.replace(plain, **fields)  # type: ignore[arg-type]


def report(items: list[ItemScore], best_constant: dict[str, float] | None = None) -> EvalReport:
    domains = list(dict.fromkeys(item.domain for item in items))
    return score_report(
        items,
        label="base",
        model="m",
        version=3,
        suite_id=suite_hash(item.task_id for name in domains for item in items if item.domain == name),
        best_constant=best_constant or dict.fromkeys(domains, 0.1),
        wall_s=1.0,
    )


def test_pass_at_1_is_the_mean_over_tasks_of_the_mean_over_attempts() -> None:
    score = report([item("a", 0, 1.0, 0.0), item("a", 1, 0.0, 0.0), item("a", 2, 1.0, 1.0)]).domains["a"]
    assert score.pass_at_1 == pytest.approx(0.5)
    assert (score.n, score.samples) == (3, 2)


def test_partial_credit_counts_for_pass_at_1_and_solves_nothing() -> None:
    score = report([item("a", 0, 0.5, 0.5), item("a", 1, 1.0, 0.0)]).domains["a"]
    assert score.pass_at_1 == 0.5
    assert score.pass_at_k == 0.5


def test_greedy_answers_tokens_and_truncation_are_counted_over_all_attempts() -> None:
    first = item("a", 0, 1.0, 0.0, greedy=1.0, answers=("7", None), num_tokens=30, truncated=1)
    second = item("a", 1, 0.0, 0.0, greedy=0.0, answers=("7", "8"), num_tokens=10)
    score = report([first, second]).domains["a"]
    assert (score.greedy, score.distinct_answers, score.mean_tokens, score.truncated_share) == (0.5, 2, 10.0, 0.25)


def test_greedy_is_absent_where_any_task_lacks_it() -> None:
    assert report([item("a", 0, 1.0, greedy=1.0), item("a", 1, 1.0)]).domains["a"].greedy is None


def test_domains_weigh_equally_in_the_mean() -> None:
    items = [item("small", 0, 1.0), *(item("large", number, 0.0) for number in range(9))]
    scored = report(items, {"small": 0.2, "large": 0.0})
    assert scored.mean.pass_at_1 == scored.mean.pass_at_k == 0.5
    assert scored.mean.best_constant == pytest.approx(0.1)
    assert scored.mean.n == 10


def test_the_mean_has_no_best_constant_where_a_domain_has_none() -> None:
    scored = report([item("a", 0, 1.0), item("b", 0, 1.0)], {"a": 0.1, "b": math.nan})
    assert math.isnan(scored.mean.best_constant)


def test_the_mean_is_known_better_than_each_domain() -> None:
    items = [item(name, number, float(number % 2)) for name in "abcd" for number in range(64)]
    scored = report(items)
    width = {name: score.ci95[1] - score.ci95[0] for name, score in scored.domains.items()}
    assert scored.mean.ci95[1] - scored.mean.ci95[0] == pytest.approx(width["a"] / 2, rel=0.1)


def test_interleaved_items_keep_their_order_and_score_alike() -> None:
    by_domain = [item(name, number, float(number)) for name in "ab" for number in range(2)]
    interleaved = [by_domain[0], by_domain[2], by_domain[1], by_domain[3]]
    assert report(interleaved).domains == report(by_domain).domains
    assert [i.task_id for i in report(interleaved).items] == ["a-0", "b-0", "a-1", "b-1"]


def test_a_domain_without_a_best_constant_is_refused() -> None:
    with pytest.raises(ValueError, match=r"items of \['a'\] and best constant answers of \['b'\]"):
        report([item("a", 0, 1.0)], {"b": 0.0})
