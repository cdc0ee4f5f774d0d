"""Which attempts people should look at, and what their labels say of each verifier. Pure and seeded.

Strata are domain × verdict × reward × flagged or not. In each, attempts have a fixed random rank and the lowest are
drawn: a random sample whenever one asks, which only grows. A verifier is a domain's, of one version.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from posttrain.core.seeding import stable_hash
from posttrain.core.types import VerdictStatus
from posttrain.gate.agreement import Estimate, Stratum, cohens_kappa, recall, stratified_share
from posttrain.store.attempt_facts import AttemptFacts
from posttrain.store.review import Label, ReviewItem, ReviewLabel, Why

SECOND_ONE_IN = 4
"""Of the drawn attempts, one in so many is labelled twice."""


@dataclass(frozen=True)
class VerifierReview:
    """One domain's verifier against the labels."""

    domain: str
    version: str
    num_attempts: int
    """With a verdict of this version."""
    num_labels: int
    """Attempts that count: labelled correct or incorrect, and not in dispute."""
    unclear: int
    disputed: int
    """Labelled both ways by as many people; they count for nothing."""
    precision: Estimate | None
    """Share of right ones among what the verifier calls correct."""
    recall: Estimate | None
    """Share of what is right that the verifier calls correct."""
    agreement: Mapping[str, float] = field(default_factory=dict)
    """Of each part of the reward with the labels: mean of 1 − |part − truth|, truth being 0 or 1."""


@dataclass(frozen=True)
class ReviewStats:
    num_items: int
    num_labelled: int
    num_twice: int
    """Attempts that two people have labelled."""
    kappa: float | None
    """Cohen's, of the first two people's labels of each such attempt."""
    verifiers: tuple[VerifierReview, ...]


def stratum_of(facts: AttemptFacts) -> str:
    reward = facts.reward if facts.reward is not None else 0.0
    band = "none" if reward <= 0.0 else "full" if reward >= 1.0 else "some"
    return "/".join([facts.domain, facts.verifier_version, facts.status, f"reward {band}", _flagged(facts)])


def draw(
    facts: Sequence[AttemptFacts], known: Sequence[ReviewItem], *, per_stratum: int, seed: int
) -> list[ReviewItem]:
    """What is missing of `per_stratum` attempts in each stratum, domain by domain. Attempts without a verdict have
    nothing to be reviewed."""
    there = {item.trajectory_id for item in known}
    strata: dict[str, list[AttemptFacts]] = defaultdict(list)
    for one in facts:
        if one.status is not VerdictStatus.NO_VERDICT:
            strata[stratum_of(one)].append(one)
    fresh = []
    for stratum, own in sorted(strata.items()):
        lowest = sorted(own, key=lambda one: stable_hash("review", seed, one.trajectory_id))[:per_stratum]
        fresh += [_item(one, stratum, seed) for one in lowest if one.trajectory_id not in there]
    return fresh


def latest(labels: Sequence[ReviewLabel]) -> dict[str, dict[str, Label]]:
    """By attempt: each reviewer's last label, the first reviewer first."""
    found: dict[str, dict[str, Label]] = defaultdict(dict)
    for label in labels:
        found[label.trajectory_id][label.reviewer] = label.label
    return dict(found)


def open_items(items: Sequence[ReviewItem], labels: Sequence[ReviewLabel], reviewer: str) -> list[ReviewItem]:
    """What this reviewer can label: attempts without a label, and those that wait for a second person's."""
    given = latest(labels)
    waiting = []
    for item in items:
        by = given.get(item.trajectory_id, {})
        if reviewer not in by and len(by) < (2 if item.second else 1):
            waiting.append(item)
    return waiting


def review_stats(
    facts: Sequence[AttemptFacts], items: Sequence[ReviewItem], labels: Sequence[ReviewLabel]
) -> ReviewStats:
    """Of the attempts that the run still holds; labels of others, and of what was not drawn, count for nothing."""
    drawn = {item.trajectory_id for item in items}
    held = {one.trajectory_id for one in facts}
    given = {name: by for name, by in latest(labels).items() if name in drawn and name in held}
    verifiers: dict[tuple[str, str], list[AttemptFacts]] = defaultdict(list)
    for one in facts:
        if one.status is not VerdictStatus.NO_VERDICT:
            verifiers[one.domain, one.verifier_version].append(one)
    twice = [tuple(by.values())[:2] for by in given.values() if len(by) > 1]
    return ReviewStats(
        num_items=len(items),
        num_labelled=len(given),
        num_twice=len(twice),
        kappa=cohens_kappa([(one, other) for one, other in twice]),
        verifiers=tuple(
            verifier_review(domain, version, own, given) for (domain, version), own in sorted(verifiers.items())
        ),
    )


def verifier_review(
    domain: str, version: str, facts: Sequence[AttemptFacts], given: Mapping[str, Mapping[str, Label]]
) -> VerifierReview:
    """`facts` are one verifier's; `given` as `latest` has it."""
    settled = {one.trajectory_id: settle(given[one.trajectory_id]) for one in facts if one.trajectory_id in given}
    right = {name: label is Label.CORRECT for name, label in settled.items() if label not in (Label.UNCLEAR, None)}
    accepted = [one for one in facts if one.status is VerdictStatus.CORRECT]
    refused = [one for one in facts if one.status is VerdictStatus.INCORRECT]
    values = {one.trajectory_id: float(right.get(one.trajectory_id, False)) for one in facts}
    precision = stratified_share(_strata(accepted, right, values))
    missed = stratified_share(_strata(refused, right, values))
    return VerifierReview(
        domain=domain,
        version=version,
        num_attempts=len(facts),
        num_labels=len(right),
        unclear=sum(label is Label.UNCLEAR for label in settled.values()),
        disputed=sum(label is None for label in settled.values()),
        precision=precision,
        recall=recall(precision, len(accepted), missed, len(refused)),
        agreement=_agreement(facts, right),
    )


def settle(by: Mapping[str, Label]) -> Label | None:
    """What most people say of one attempt; None where they are split. "Unclear" counts where nobody says more."""
    counts = Counter(label for label in by.values() if label is not Label.UNCLEAR)
    if not counts:
        return Label.UNCLEAR
    if counts[Label.CORRECT] == counts[Label.INCORRECT]:
        return None
    return max(counts, key=lambda label: counts[label])


def _agreement(facts: Sequence[AttemptFacts], right: Mapping[str, bool]) -> dict[str, float]:
    names = sorted({part for one in facts for part in one.reward_parts})
    found = {}
    for part in names:
        having = [one for one in facts if part in one.reward_parts]
        values = {
            one.trajectory_id: 1.0 - min(1.0, abs(one.reward_parts[part] - right[one.trajectory_id]))
            for one in having
            if one.trajectory_id in right
        }
        estimate = stratified_share(_strata(having, right, values))
        if estimate is not None:
            found[part] = estimate.value
    return found


def _strata(facts: Sequence[AttemptFacts], right: Mapping[str, bool], values: Mapping[str, float]) -> list[Stratum]:
    """`values` of the labelled ones are averaged in each stratum."""
    by_stratum: dict[str, list[AttemptFacts]] = defaultdict(list)
    for one in facts:
        by_stratum[stratum_of(one)].append(one)
    strata = []
    for own in by_stratum.values():
        labelled = [values[one.trajectory_id] for one in own if one.trajectory_id in right]
        strata.append(Stratum(len(own), len(labelled), sum(labelled) / len(labelled) if labelled else 0.0))
    return strata


def _item(facts: AttemptFacts, stratum: str, seed: int) -> ReviewItem:
    return ReviewItem(
        trajectory_id=facts.trajectory_id,
        stage_index=facts.position.stage_index,
        step=facts.position.step,
        domain=facts.domain,
        stratum=stratum,
        why=Why.FLAGGED if _flagged(facts) == "flagged" else Why.RANDOM,
        second=stable_hash("second", seed, facts.trajectory_id) % SECOND_ONE_IN == 0,
    )


def _flagged(facts: AttemptFacts) -> str:
    """Whether the verifier paid for what a detector saw, or the independent verifier says otherwise."""
    other = facts.held_out is not None and facts.held_out is not VerdictStatus.NO_VERDICT
    return "flagged" if facts.suspect or (other and facts.held_out is not facts.status) else "plain"
