"""Which numbers of a run are drawn together: its metrics → charts, with whatever names there are.

A domain has one colour in every chart. Steps of several stages that share a number follow one another on the axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from posttrain.observe.plots import Chart, Series, line_chart
from posttrain.store.metrics import MetricsRecord

NUM_COLORS = 8
_TOGETHER: tuple[tuple[str, tuple[str, ...], bool], ...] = (
    ("KL and mismatch, nats a token", ("kl", "mismatch"), False),
    ("Entropy, nats a token", ("entropy",), False),
    ("Shares of groups, tokens and attempts", ("zero_signal_share", "clipped_share", "truncated_share"), True),
    ("Gradient norm", ("grad_norm",), False),
    ("Tokens a second", ("tokens_per_s",), False),
    ("Tokens an attempt", ("mean_tokens",), False),
    ("Distinct answers in a step", ("distinct_answers",), False),
)


@dataclass(frozen=True)
class TimeShare:
    """How long one phase took, in the mean over the steps that measured it."""

    phase: str
    seconds: float
    share: float
    """Of the largest of all phases' sum and the step: phases may overlap."""


def charts(records: Sequence[MetricsRecord], domains: Sequence[str]) -> list[Chart]:
    """In the order of reading; those without a point are left out."""
    drawn: list[Chart | None] = []
    for title, prefix in (("Pass rate in training", "pass/"), ("Reward", "reward/")):
        lines = [
            Series(domain, _points(records, f"{prefix}{domain}"), number % NUM_COLORS)
            for number, domain in enumerate(domains)
        ]
        flat = all(0.0 <= y <= 1.0 for line in lines for _, y in line.points)
        drawn.append(line_chart(title, lines, share=flat))
    if drawn[0] is not None and drawn[1] is not None and _same(records, domains):
        drawn.pop()
    for domain in domains:
        drawn += _parts(records, domain)
    for stage in dict.fromkeys(record.stage for record in records):
        own = [record for record in records if record.stage == stage]
        drawn.append(line_chart(f"Loss, {stage}", _named(own, ("loss", "validation_loss"))))
    drawn += [line_chart(title, _named(records, names), share=share) for title, names, share in _TOGETHER]
    return [chart for chart in drawn if chart is not None]


def part_names(records: Sequence[MetricsRecord], domain: str) -> list[str]:
    """Parts of the domain's reward, in the order in which they were recorded."""
    prefix = f"reward_weight/{domain}/"
    names = (name for record in records for name in record.values if name.startswith(prefix))
    return list(dict.fromkeys(name.removeprefix(prefix) for name in names))


def time_shares(records: Sequence[MetricsRecord]) -> list[TimeShare]:
    """From the values named `time/…_s`; what is left of `time/step_s` is "other". Largest first."""
    names = dict.fromkeys(name for record in records for name in record.values if name.startswith("time/"))
    means = {name.removeprefix("time/").removesuffix("_s"): _mean(records, name) for name in names}
    step = means.pop("step", 0.0)
    other = step - sum(means.values())
    if other > 0.005 * step:
        means["other"] = other
    whole = max(step, sum(means.values()))
    found = [TimeShare(phase, seconds, seconds / whole) for phase, seconds in means.items() if whole > 0]
    return sorted(found, key=lambda share: -share.seconds)


def _parts(records: Sequence[MetricsRecord], domain: str) -> list[Chart | None]:
    """The parts of a domain's reward as they were measured, and their weights where one of them moved."""
    names = part_names(records, domain)
    measured, weights = (
        [
            Series(name, _points(records, f"{metric}/{domain}/{name}"), number % NUM_COLORS)
            for number, name in enumerate(names)
        ]
        for metric in ("reward", "reward_weight")
    )
    moved = any(len({y for _, y in line.points}) > 1 for line in weights)
    return [
        line_chart(f"Parts of the reward, {domain}", measured, share=True),
        line_chart(f"Weights of the parts, {domain}", weights, from_zero=True) if moved else None,
    ]


def _named(records: Sequence[MetricsRecord], names: Iterable[str]) -> list[Series]:
    """One line a name, or one a name and stage where several stages measured it: they are not one curve."""
    lines: list[tuple[str, tuple[tuple[float, float], ...]]] = []
    for name in names:
        stages = dict.fromkeys(record.stage for record in records if name in record.values)
        points, taken = _points(records, name), 0
        for stage in stages:
            count = sum(record.stage == stage and name in record.values for record in records)
            label = name.replace("_", " ") + (f", {stage}" if len(stages) > 1 else "")
            lines.append((label, points[taken : taken + count]))
            taken += count
    return [Series(label, points, number % NUM_COLORS) for number, (label, points) in enumerate(lines)]


def _points(records: Sequence[MetricsRecord], name: str) -> tuple[tuple[float, float], ...]:
    points = []
    offset, stage_index, last_step = 0, None, 0
    for record in records:
        if name not in record.values:
            continue
        if record.stage_index != stage_index:
            offset, stage_index = offset + last_step, record.stage_index
        last_step = record.step
        points.append((float(offset + record.step), record.values[name]))
    return tuple(points)


def _same(records: Sequence[MetricsRecord], domains: Sequence[str]) -> bool:
    """Whether reward is the pass rate and nothing else: then one chart says it."""
    return all(_points(records, f"pass/{domain}") == _points(records, f"reward/{domain}") for domain in domains)


def _mean(records: Sequence[MetricsRecord], name: str) -> float:
    values = [record.values[name] for record in records if name in record.values]
    return sum(values) / len(values)
