"""What a person should know before believing a run: one sentence for each sign of trouble in its records.

Signs in the metrics are rules (`core/rules.py`), with their thresholds' reasons beside them; "at the end" is the mean
over the last tenth of a stage's steps. Comparisons of evaluations are no rules over metrics. It stops nothing and
changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from posttrain.core.rules import Comparison, Firing, Rule, evaluate
from posttrain.core.types import EvalReport
from posttrain.store.metrics import MetricsRecord

_NO_VERDICT = Rule("no_verdict", "no_verdict", Comparison.ABOVE, 0.0, cooldown_steps=0)
_NOT_FINITE = tuple(
    Rule(f"{metric}_not_finite", metric, Comparison.NOT_FINITE, cooldown_steps=0)
    for metric in ("loss", "grad_norm", "reward")
)
_ROLL_BACKS = Rule("roll_backs", "roll_backs", Comparison.ABOVE, 0.0, cooldown_steps=0)
_ENDS = {
    # Mean |trainer - sampler| log-prob of a token; the rounding of bfloat16 alone stays under a fifth of it.
    Rule("mismatch", "mismatch", Comparison.ABOVE, 0.1): "sampler and trainer differ by {:.2f} nats a token",
    # Of groups whose siblings all scored the same: nothing is learned from them.
    Rule("no_signal", "zero_signal_share", Comparison.ABOVE, 0.9): (
        "{:.0%} of the groups gave no signal: nearly nothing is learned"
    ),
    # Attempts that end where the limit is say little about their tasks.
    Rule("truncated", "truncated_share", Comparison.ABOVE, 0.5): (
        "{:.0%} of the attempts were cut off by a length limit"
    ),
}
"""Over a stage's last steps → the sentence for the mean that broke it."""


def alarms(
    records: Sequence[MetricsRecord],
    reports: Sequence[EvalReport],
    rules: Mapping[str, Sequence[Rule]] | None = None,
) -> list[str]:
    """Sentences, the gravest first; none is a good sign. `rules` are the stages' own, by the stage's name."""
    return [
        *_failures(records),
        *_kept_out(records),
        *_numbers(records),
        *_returns(records),
        *_ends(records),
        *_fired(records, rules or {}),
        *_evaluations(reports),
    ]


def _failures(records: Sequence[MetricsRecord]) -> Iterator[str]:
    lost = _firings(_NO_VERDICT, records)
    if lost:
        attempts = round(sum(firing.value for _, firing in lost))
        where = f"{_count(attempts, 'attempt')} in {_count(len(lost), 'training step')}"
        yield f"{where} got no verdict, through failures of ours{_of_domains(records, 'no_verdict/')}"


def _kept_out(records: Sequence[MetricsRecord]) -> Iterator[str]:
    quarantined = round(sum(record.values.get("quarantined", 0.0) for record in records))
    if quarantined:
        where = _of_domains(records, "quarantined/")
        yield f"{_count(quarantined, 'attempt')} stayed out of the gradient by rule{where}: see posttrain audit"
    for stage, own in _by_stage(records).items():
        for name, value in own[-1].values.items():
            if name.startswith("paused/") and value:
                since = next(record.step for record in own if record.values.get(name)) - 1
                yield f"{name.removeprefix('paused/')} was paused after step {since} of {stage}: see posttrain audit"


def _numbers(records: Sequence[MetricsRecord]) -> Iterator[str]:
    for rule in _NOT_FINITE:
        bad = _firings(rule, records)
        if bad:
            stage, first = bad[0]
            yield f"{rule.metric} was not finite in {_count(len(bad), 'step')}, first in step {first.step} of {stage}"


def _returns(records: Sequence[MetricsRecord]) -> Iterator[str]:
    for stage, firing in dict(_firings(_ROLL_BACKS, records)).items():
        yield f"{stage} returned to an earlier checkpoint {_count(round(firing.value), 'time')}"


def _ends(records: Sequence[MetricsRecord]) -> Iterator[str]:
    for stage, own in _by_stage(records).items():
        last = own[-max(1, len(own) // 10) :]
        for firing in evaluate(_ENDS, [_mean(last)]):
            yield f"at the end of {stage}, {_ENDS[firing.rule].format(firing.value)}"


def _fired(records: Sequence[MetricsRecord], rules: Mapping[str, Sequence[Rule]]) -> Iterator[str]:
    """What the stages' own rules said while they ran; all firings of a rule for one metric are one sentence."""
    for stage, own in _by_stage(records).items():
        found: dict[tuple[str, str], list[Firing]] = {}
        for firing in evaluate(rules.get(stage, ()), own):
            found.setdefault((firing.rule.name, firing.metric), []).append(firing)
        for firings in found.values():
            again = f" (and {_count(len(firings) - 1, 'time')} again)" if len(firings) > 1 else ""
            yield f"in {stage}, {firings[0].sentence}{again}"


def _evaluations(reports: Sequence[EvalReport]) -> Iterator[str]:
    for report in reports:
        lost = sum(score.no_verdict for score in report.domains.values())
        if lost:
            yield f"{_count(lost, 'attempt')} of the evaluation after {report.label} got no verdict, counted as wrong"
    for before, after in pairwise(reports):
        for domain, old in before.domains.items():
            new = after.domains.get(domain, old)
            if new.ci95[1] < old.ci95[0]:
                fall = f"{domain} fell from {old.pass_at_1:.1%} to {new.pass_at_1:.1%}"
                yield f"{fall} between {before.label} and {after.label}"
    if len(reports) > 1:
        for domain, score in reports[-1].domains.items():
            if score.pass_at_1 <= score.best_constant:
                yield f"{domain} ends no better than the best constant answer ({score.best_constant:.1%})"


def _firings(rule: Rule, records: Sequence[MetricsRecord]) -> list[tuple[str, Firing]]:
    """With their stages' names."""
    return [(stage, firing) for stage, own in _by_stage(records).items() for firing in evaluate([rule], own)]


def _of_domains(records: Sequence[MetricsRecord], prefix: str) -> str:
    """` (words 3, sums 1)` from the counts whose names begin so; empty where there are none."""
    counts: dict[str, float] = {}
    for record in records:
        for name, value in record.values.items():
            if name.startswith(prefix):
                domain = name.removeprefix(prefix)
                counts[domain] = counts.get(domain, 0.0) + value
    listed = sorted(counts.items(), key=lambda item: -item[1])
    return f" ({', '.join(f'{domain} {round(count)}' for domain, count in listed)})" if listed else ""


def _by_stage(records: Sequence[MetricsRecord]) -> dict[str, list[MetricsRecord]]:
    stages: dict[str, list[MetricsRecord]] = {}
    for record in records:
        stages.setdefault(record.stage, []).append(record)
    return stages


def _mean(records: Sequence[MetricsRecord]) -> MetricsRecord:
    """The last of `records` with the mean of each value, over those that have a finite one."""
    values: dict[str, list[float]] = {}
    for record in records:
        for name, value in record.values.items():
            if math.isfinite(value):
                values.setdefault(name, []).append(value)
    return replace(records[-1], values={name: sum(known) / len(known) for name, known in values.items()})


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
