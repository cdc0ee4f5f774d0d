"""What a person should know before believing a run: one sentence for each sign of trouble in its records.

Thresholds are stated beside their reasons. "At the end" is the last tenth of a stage's steps. It stops nothing and
changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from posttrain.core.types import EvalReport
from posttrain.store.metrics import MetricsRecord

MISMATCH_NATS = 0.1
"""Mean |trainer - sampler| log-prob of a token; the rounding of bfloat16 alone stays under a fifth of it."""
NO_SIGNAL_SHARE = 0.9
"""Of groups whose siblings all scored the same: nothing is learned from them."""
TRUNCATED_SHARE = 0.5


def alarms(records: Sequence[MetricsRecord], reports: Sequence[EvalReport]) -> list[str]:
    """Sentences, the gravest first; none is a good sign."""
    return [*_failures(records), *_numbers(records), *_ends(records), *_evaluations(reports)]


def _failures(records: Sequence[MetricsRecord]) -> Iterator[str]:
    lost = [record for record in records if record.values.get("no_verdict", 0) > 0]
    if lost:
        attempts = round(sum(record.values["no_verdict"] for record in lost))
        where = f"{_count(attempts, 'attempt')} in {_count(len(lost), 'training step')}"
        yield f"{where} got no verdict, through failures of ours"


def _numbers(records: Sequence[MetricsRecord]) -> Iterator[str]:
    for name in ("loss", "grad_norm", "reward"):
        bad = [record for record in records if not math.isfinite(record.values.get(name, 0.0))]
        if bad:
            yield f"{name} was not finite in {_count(len(bad), 'step')}, first in step {bad[0].step} of {bad[0].stage}"


def _ends(records: Sequence[MetricsRecord]) -> Iterator[str]:
    for stage in dict.fromkeys(record.stage for record in records):
        of_stage = [record for record in records if record.stage == stage]
        last = of_stage[-max(1, len(of_stage) // 10) :]
        mismatch, no_signal, truncated = (
            _mean(last, name) for name in ("mismatch_mean", "zero_signal_share", "truncated_share")
        )
        if mismatch > MISMATCH_NATS:
            yield f"at the end of {stage}, sampler and trainer differ by {mismatch:.2f} nats a token"
        if no_signal > NO_SIGNAL_SHARE:
            yield f"at the end of {stage}, {no_signal:.0%} of the groups gave no signal: nearly nothing is learned"
        if truncated > TRUNCATED_SHARE:
            yield f"at the end of {stage}, {truncated:.0%} of the attempts were cut off by a length limit"


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


def _mean(records: Sequence[MetricsRecord], name: str) -> float:
    values = [record.values[name] for record in records if name in record.values]
    return sum(values) / len(values) if values else 0.0


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
