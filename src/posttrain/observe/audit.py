"""`posttrain audit RUN`: what was seen of each domain's verifier while a run went on, from its records, with examples.

It reads and counts; it judges no attempt anew (`posttrain reverify` does) and asks nobody (`posttrain review` does).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from posttrain.core.rules import Action, Firing, Rule, evaluate
from posttrain.core.seeding import stable_hash
from posttrain.core.types import Detection, Json, VerdictStatus
from posttrain.gate.review import VerifierReview, review_stats
from posttrain.observe.summary import stage_rules
from posttrain.store.attempt_facts import AttemptFacts, attempt_facts
from posttrain.store.files import plain
from posttrain.store.metrics import MetricsRecord, read_metrics
from posttrain.store.position import Position
from posttrain.store.review import ReviewStore
from posttrain.store.run_directory import RunDirectory
from posttrain.store.trajectories import TrajectoryStore

NUM_EXAMPLES = 3
"""Of each detector and domain."""
MAX_TEXT_CHARACTERS = 300
WATCHED = (
    "suspect", "suspect_of_paid", "detector", "drift", "visible_hidden_gap", "audit", "no_verdict_share",
    "constant_share", "answer_entropy", "held_out", "mean_tokens", "entropy",
)  # fmt: skip
"""What the metrics of the rules that are told here begin with, up to the first slash."""


@dataclass(frozen=True)
class DetectorCount:
    domain: str
    detector: str
    row: int
    grave: bool
    attempts: int
    """On which it fired."""
    paid: int
    """Of those, the ones that the verifier gave a score above 0."""
    quarantined: int
    first_step: int


@dataclass(frozen=True)
class Example:
    """One attempt that a detector fired on."""

    domain: str
    detector: str
    seen: str
    trajectory_id: str
    step: int
    status: str
    reward: float | None
    answer: str | None
    prompt: str
    reply: str
    quarantine: str


@dataclass(frozen=True)
class DomainAudit:
    domain: str
    verifier_versions: tuple[str, ...]
    attempts: int
    correct: int
    no_verdict: int
    suspect: int
    """Paid although a grave detector fired."""
    quarantined: int
    held_out: int
    """Attempts that the independent verifier judged too."""
    held_out_agrees: int
    paused_since: int | None
    """Step after which the domain gave no tasks any more."""
    last: dict[str, float]
    """The last value of each metric of the domain that rules of this kind watch."""


@dataclass(frozen=True)
class Alarm:
    """One rule that fired, for one metric: its first firing and how often it did."""

    stage: str
    rule: str
    action: str
    metric: str
    step: int
    times: int
    sentence: str


@dataclass(frozen=True)
class Audit:
    run: str
    domains: tuple[DomainAudit, ...]
    detectors: tuple[DetectorCount, ...]
    alarms: tuple[Alarm, ...]
    examples: tuple[Example, ...]
    reviews: tuple[VerifierReview, ...]
    """Of verifiers that people have labelled attempts of."""

    def plain(self) -> dict[str, Json]:
        content: dict[str, Json] = plain(asdict(self))
        return content


def audit(run: RunDirectory) -> Audit:
    """Raises `StoreError` for a damaged record, `UserError` for one of a newer posttrain."""
    store = TrajectoryStore(run.trajectories)
    facts = list(attempt_facts(store))
    records = read_metrics(run.metrics).records
    review = ReviewStore(run.review)
    reviews = review_stats(facts, review.items(), review.labels()).verifiers
    alarms = _alarms(records, stage_rules(run.config()))
    return Audit(
        run=run.name,
        domains=tuple(_domain(name, own, records) for name, own in _by_domain(facts).items()),
        detectors=tuple(_detectors(facts)),
        alarms=tuple(alarms),
        examples=tuple(_examples(store, facts)),
        reviews=tuple(found for found in reviews if found.num_labels),
    )


def _domain(name: str, facts: Sequence[AttemptFacts], records: Sequence[MetricsRecord]) -> DomainAudit:
    both = [one for one in facts if one.held_out not in (None, VerdictStatus.NO_VERDICT)]
    paused = [record.step for record in records if record.values.get(f"paused/{name}")]
    return DomainAudit(
        domain=name,
        verifier_versions=tuple(dict.fromkeys(one.verifier_version for one in facts if one.verifier_version)),
        attempts=len(facts),
        correct=sum(one.status is VerdictStatus.CORRECT for one in facts),
        no_verdict=sum(one.status is VerdictStatus.NO_VERDICT for one in facts),
        suspect=sum(one.suspect for one in facts),
        quarantined=sum(bool(one.quarantine) for one in facts),
        held_out=len(both),
        held_out_agrees=sum(one.held_out is one.status for one in both),
        paused_since=paused[0] - 1 if paused and records[-1].values.get(f"paused/{name}") else None,
        last=_last(name, records),
    )


def _last(domain: str, records: Sequence[MetricsRecord]) -> dict[str, float]:
    last: dict[str, float] = {}
    for record in records:
        for name, value in record.values.items():
            if name.endswith(f"/{domain}") and name.partition("/")[0] in (*WATCHED, "reward", "pass"):
                last[name] = value
    return last


def _detectors(facts: Sequence[AttemptFacts]) -> Iterable[DetectorCount]:
    """The most paid first."""
    fired: dict[tuple[str, str], list[tuple[AttemptFacts, Detection]]] = defaultdict(list)
    for one in facts:
        for detection in one.detections:
            fired[one.domain, detection.name].append((one, detection))
    counts = [
        DetectorCount(
            domain=domain,
            detector=name,
            row=own[0][1].row,
            grave=own[0][1].grave,
            attempts=len(own),
            paid=sum(one.score > 0.0 for one, _ in own),
            quarantined=sum(bool(one.quarantine) for one, _ in own),
            first_step=own[0][0].position.step,
        )
        for (domain, name), own in fired.items()
    ]
    return sorted(counts, key=lambda count: (-count.grave, -count.paid, -count.attempts, count.domain, count.detector))


def _examples(store: TrajectoryStore, facts: Sequence[AttemptFacts]) -> Iterable[Example]:
    """Paid ones before others, the choice among them random and always the same."""
    wanted: dict[Position, list[tuple[str, Detection]]] = defaultdict(list)
    fired: dict[tuple[str, str], list[tuple[AttemptFacts, Detection]]] = defaultdict(list)
    for one in facts:
        for detection in one.detections:
            fired[one.domain, detection.name].append((one, detection))
    for own in fired.values():
        own.sort(key=lambda pair: (pair[0].score <= 0.0, stable_hash("example", pair[0].trajectory_id)))
        for one, detection in own[:NUM_EXAMPLES]:
            wanted[one.position].append((one.trajectory_id, detection))
    found = []
    for position, chosen in sorted(wanted.items()):
        rows = {row.trajectory_id: row for row in store.read(position)}
        for trajectory_id, detection in chosen:
            row = rows[trajectory_id]
            found.append(
                Example(
                    domain=row.domain,
                    detector=detection.name,
                    seen=detection.seen,
                    trajectory_id=trajectory_id,
                    step=row.step,
                    status=str(row.status),
                    reward=row.reward.total if row.reward is not None else None,
                    answer=row.verdict.answer if row.verdict is not None else None,
                    prompt=row.prompt[-1].content[:MAX_TEXT_CHARACTERS] if row.prompt else "",
                    reply=row.reply[:MAX_TEXT_CHARACTERS],
                    quarantine=row.quarantine,
                )
            )
    return sorted(found, key=lambda example: (example.domain, example.detector, example.step))


def _alarms(records: Sequence[MetricsRecord], rules: dict[str, list[Rule]]) -> list[Alarm]:
    alarms = []
    for stage, of_stage in rules.items():
        own = [record for record in records if record.stage == stage]
        watched = [rule for rule in of_stage if rule.metric.partition("/")[0] in WATCHED]
        firings = evaluate(watched, own)
        times = Counter((firing.rule.name, firing.metric) for firing in firings)
        firsts: dict[tuple[str, str], Firing] = {}
        for firing in firings:
            firsts.setdefault((firing.rule.name, firing.metric), firing)
        alarms += [
            Alarm(stage, f.rule.name, str(f.rule.action), f.metric, f.step, times[key], f.sentence)
            for key, f in firsts.items()
        ]
    gravest = (Action.STOP, Action.ROLL_BACK, Action.PAUSE, Action.QUARANTINE)
    return sorted(alarms, key=lambda alarm: (alarm.action not in gravest, alarm.step))


def _by_domain(facts: Iterable[AttemptFacts]) -> dict[str, list[AttemptFacts]]:
    found: dict[str, list[AttemptFacts]] = defaultdict(list)
    for one in facts:
        found[one.domain].append(one)
    return dict(sorted(found.items()))
