"""L29: the same items score the same, and no score stands without its uncertainty and its n."""

from __future__ import annotations

import dataclasses

from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.core.types import EvalReport, ItemScore
from posttrain.gate.score import score_report
from posttrain.gate.statistics import paired_gain
from posttrain.gate.suite import suite_hash

Scores = dict[str, list[tuple[float, float]]]
scores = st.dictionaries(
    st.sampled_from(["arithmetic", "words", "logic"]),
    st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([0.0, 1.0])), min_size=1, max_size=20),
    min_size=1,
)


def report(scores: Scores, label: str = "base") -> EvalReport:
    items = [
        ItemScore(domain, f"{domain}-{number}", attempts, attempts[0], ("x", None), 0, 4, 0)
        for domain, tasks in scores.items()
        for number, attempts in enumerate(tasks)
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


@settings(deadline=None, max_examples=40)
@given(scores)
def test_same_items_give_the_same_report_bit_for_bit(scores: Scores) -> None:
    other = {domain: tasks[::-1] for domain, tasks in scores.items()}
    assert report(scores) == report(scores)
    assert paired_gain(report(scores), report(other)) == paired_gain(report(scores), report(other))


@settings(deadline=None, max_examples=40)
@given(scores)
def test_every_score_has_an_interval_of_some_width_around_it_and_an_n(scores: Scores) -> None:
    scored = report(scores)
    for name, score in {**scored.domains, "mean": scored.mean}.items():
        low, high = score.ci95
        assert 0.0 <= low <= score.pass_at_1 + 1e-12, name
        assert score.pass_at_1 - 1e-12 <= high <= 1.0 + 1e-12, name
        assert high - low > 0.0, name
        assert score.n == (len(scored.items) if name == "mean" else len(scores[name]))


def test_the_interval_belongs_to_the_items_and_not_to_who_measured_them() -> None:
    measured: Scores = {"words": [(1.0, 0.0), (0.5, 1.0), (0.0, 0.0)]}
    assert report(measured, "base").domains == report(measured, "rl").domains
    assert dataclasses.replace(report(measured, "rl"), label="base") == report(measured, "base")
