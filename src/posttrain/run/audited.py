"""What people's labels say of the verifiers, as metrics of the step: a running run follows them from step to step.

Read anew only where labels were added. Labels on what an earlier version of a verifier said do not count against the
present one.
"""

from __future__ import annotations

from collections.abc import Mapping

from posttrain.gate.review import VerifierReview, latest, verifier_review
from posttrain.run.config import DomainConfig
from posttrain.store.attempt_facts import AttemptFacts, attempt_facts
from posttrain.store.position import Position
from posttrain.store.review import ReviewStore
from posttrain.store.run_directory import RunDirectory
from posttrain.store.trajectories import TrajectoryStore

MIN_LABELS = 10
"""Below which the agreement of a reward's parts with the labels is noise, and not published."""


class AuditedTruth:
    """Of one run's domains. `since`: the positions up to which a domain had another verifier."""

    def __init__(
        self, directory: RunDirectory, configs: Mapping[str, DomainConfig], since: Mapping[str, Position]
    ) -> None:
        self._review = ReviewStore(directory.review)
        self._attempts = TrajectoryStore(directory.trajectories)
        self._configs = configs
        self._since = since
        self._size = 0
        self._values: dict[str, float] = {}

    def values(self) -> dict[str, float]:
        """By domain: `audit/precision`, `audit/precision_margin` (the interval's upper end minus the floor),
        `audit/labels` and, with enough labels, `audit/agreement/DOMAIN/PART`. Empty where there are no labels."""
        path = self._review.labels_path
        size = path.stat().st_size if path.exists() else 0
        if size != self._size:  # it only grows
            self._size = size
            self._values = self._read()
        return dict(self._values)

    def _read(self) -> dict[str, float]:
        given = latest(self._review.labels())
        drawn = {item.trajectory_id for item in self._review.items()}
        given = {name: by for name, by in given.items() if name in drawn}
        facts: dict[str, list[AttemptFacts]] = {name: [] for name in self._configs}
        for one in attempt_facts(self._attempts):
            since = self._since.get(one.domain)
            if one.domain in facts and (since is None or one.position > since):
                facts[one.domain].append(one)
        values: dict[str, float] = {}
        for domain, own in facts.items():
            if own:
                version = own[-1].verifier_version
                present = [one for one in own if one.verifier_version == version]
                found = verifier_review(domain, version, present, given)
                values |= audit_values(found, self._configs[domain].precision_floor)
        return values


def audit_values(found: VerifierReview, floor: float) -> dict[str, float]:
    values: dict[str, float] = {}
    domain = found.domain
    if found.num_labels:
        values[f"audit/labels/{domain}"] = float(found.num_labels)
    if found.precision is not None:
        values[f"audit/precision/{domain}"] = found.precision.value
        values[f"audit/precision_margin/{domain}"] = found.precision.ci95[1] - floor
    if found.num_labels >= MIN_LABELS:
        values |= {f"audit/agreement/{domain}/{part}": value for part, value in found.agreement.items()}
    return values
