"""A run's records → one typed summary: what was trained, what it scored before and after, what to worry about.

Works on unfinished runs with what there is. Reads through `store`; computes no score and no interval of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from pydantic import TypeAdapter

from posttrain.core.rules import Rule
from posttrain.core.types import DomainScore, EvalReport, Json
from posttrain.observe.alarms import alarms
from posttrain.observe.curves import part_names
from posttrain.store.files import plain
from posttrain.store.metrics import MetricsRecord, read_metrics
from posttrain.store.reports import read_reports
from posttrain.store.run_directory import RunDirectory


@dataclass(frozen=True)
class StageSummary:
    name: str
    kind: str
    steps: int
    """Done."""
    planned_steps: int | None
    """At most; a plateau rule may end a stage before them."""


@dataclass(frozen=True)
class Gain:
    """Paired, over the suite's tasks, domains weighing equally; fractions."""

    mean: float
    ci95: tuple[float, float]


@dataclass(frozen=True)
class PartSummary:
    """One part of a domain's reward, over the steps of reinforcement learning."""

    domain: str
    part: str
    first_weight: float
    last_weight: float
    curve: tuple[float, ...]
    """Its mean as it was measured, before weights: over scored attempts, over correct ones for efficiency."""


@dataclass(frozen=True)
class Summary:
    """What `posttrain show` prints."""

    run: str
    path: str
    model: str
    seed: int
    finished: bool
    wall_s: float
    """Of the run when it is finished; so far, pauses included, while it is not."""
    stages: tuple[StageSummary, ...]
    labels: tuple[str, ...]
    """Of the evaluations, in order: "base", then stages."""
    within: Mapping[str, DomainScore]
    """Evaluations within a stage, by label and in order: the mean over domains."""
    domains: Mapping[str, Mapping[str, DomainScore]]
    """By domain and label."""
    mean: Mapping[str, DomainScore]
    """By label; over domains that weigh equally."""
    gain_rl: Gain | None
    curves: Mapping[str, tuple[float, ...]]
    """Reward of each domain over the steps of reinforcement learning."""
    parts: tuple[PartSummary, ...]
    """Of rewards with several parts."""
    alarms: tuple[str, ...]

    @property
    def steps(self) -> int:
        return sum(stage.steps for stage in self.stages)


def summary(run: RunDirectory) -> Summary:
    """Raises `StoreError` for a damaged record, `UserError` for one of a newer posttrain."""
    manifest, result, config = run.manifest(), run.result(), run.config()
    metrics = read_metrics(run.metrics)
    made = read_reports(run.evals)
    ends = {"base", *(stage.get("name", stage["kind"]) for stage in config.get("stages", []))}
    reports = [report for report in made if report.label in ends]
    curves = reward_curves(metrics.records)
    return Summary(
        run=run.name,
        path=str(run.path),
        model=manifest.model,
        seed=manifest.seed,
        finished=result is not None,
        wall_s=_wall_s(result, manifest.created, metrics.records),
        stages=_stages(config, metrics.records),
        labels=tuple(report.label for report in reports),
        within={report.label: report.mean for report in made if report.label not in ends},
        domains=_by_domain(reports),
        mean={report.label: report.mean for report in reports},
        gain_rl=_gain(result),
        curves=curves,
        parts=part_summaries(metrics.records, list(curves)),
        alarms=(*alarms(metrics.records, reports, stage_rules(config)), *([metrics.torn] if metrics.torn else [])),
    )


def to_json(found: Summary) -> dict[str, Json]:
    """The object that `posttrain show --json` prints; scores are fractions, what was not measured is null."""
    content = asdict(found)
    del content["curves"], content["labels"]
    content["steps"] = found.steps
    content["labels"] = list(found.labels)
    result: dict[str, Json] = plain(content)
    return result


def reward_curves(records: Sequence[MetricsRecord]) -> dict[str, tuple[float, ...]]:
    """By domain: `reward/DOMAIN`, or the pass rate where a run recorded that alone."""
    for prefix in ("reward/", "pass/"):
        # `reward/DOMAIN/PART` is a part's.
        found = (name for record in records for name in record.values if name.startswith(prefix))
        names = dict.fromkeys(name for name in found if name.count("/") == 1)
        if names:
            return {
                name.removeprefix(prefix): tuple(record.values[name] for record in records if name in record.values)
                for name in names
            }
    return {}


def part_summaries(records: Sequence[MetricsRecord], domains: Sequence[str]) -> tuple[PartSummary, ...]:
    found = []
    for domain in domains:
        for part in part_names(records, domain):
            weight, value = f"reward_weight/{domain}/{part}", f"reward/{domain}/{part}"
            weights = [record.values[weight] for record in records if weight in record.values]
            curve = tuple(record.values[value] for record in records if value in record.values)
            found.append(PartSummary(domain, part, weights[0], weights[-1], curve))
    return tuple(found)


def _by_domain(reports: Sequence[EvalReport]) -> dict[str, dict[str, DomainScore]]:
    names = dict.fromkeys(name for report in reports for name in report.domains)
    return {
        name: {report.label: report.domains[name] for report in reports if name in report.domains} for name in names
    }


def _stages(config: Mapping[str, Json], records: Sequence[MetricsRecord]) -> tuple[StageSummary, ...]:
    """The configured ones, and any that only the metrics know."""
    done = {record.stage: record.step for record in records}
    planned = {
        stage.get("name", stage.get("kind", "")): (stage.get("kind", ""), stage.get("steps", stage.get("max_steps")))
        for stage in config.get("stages", [])
    }
    names = dict.fromkeys([*planned, *done])
    return tuple(
        StageSummary(n, planned.get(n, ("", None))[0], done.get(n, 0), planned.get(n, ("", None))[1]) for n in names
    )


def stage_rules(config: Mapping[str, Json]) -> dict[str, list[Rule]]:
    """Of each stage that the run watched by rules."""
    stages = [stage for stage in config.get("stages", []) if stage.get("rules")]
    return {
        stage.get("name", stage["kind"]): TypeAdapter(list[Rule]).validate_python(stage["rules"]) for stage in stages
    }


def _gain(result: Mapping[str, Json] | None) -> Gain | None:
    gain = (result or {}).get("gain_rl")
    return Gain(gain["mean"], (gain["ci95"][0], gain["ci95"][1])) if gain else None


def _wall_s(result: Mapping[str, Json] | None, created: str, records: Sequence[MetricsRecord]) -> float:
    if result is not None and "wall_s" in result:
        return float(result["wall_s"])
    return max(0.0, records[-1].time - datetime.fromisoformat(created).timestamp()) if records else 0.0
