"""What a gate says of one version beside another, with its reasons. Plain records; nothing here computes or decides."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from posttrain.core.types import EvalReport

Interval = tuple[float, float]


class Outcome(enum.StrEnum):
    """Of one domain: is the candidate worse there than the reference?"""

    PASS = "pass"
    """No worse than by the margin: shown."""
    REGRESS = "regress"
    """Worse: shown."""
    INCONCLUSIVE = "inconclusive"
    """Neither is shown by this many tasks."""


class DecisionKind(enum.StrEnum):
    PROMOTE = "promote"
    """The candidate becomes the reference."""
    HOLD = "hold"
    """The reference stays; what is not shown does not pass."""
    ROLLBACK = "rollback"
    """The reference stays, and the candidate is to be given up."""


@dataclass(frozen=True)
class Audit:
    """What people found in one domain's verdicts."""

    precision: float
    """Share of the attempts said to be correct that were."""
    reviewed: int
    """Attempts looked at."""


@dataclass(frozen=True)
class DomainOutcome:
    """One domain of one look: candidate minus reference, on the same tasks under the same sampling seeds."""

    outcome: Outcome
    delta: float
    ci95: Interval
    n: int
    """Distinct tasks."""
    margin: float
    """The loss that must be excluded for a pass."""
    detectable: float | None
    """The smallest loss that this look shows with a chance of 80 %; None: it can show none."""
    decline_p: float
    """Of this look alone (McNemar's test or the bootstrap): it warns."""
    anytime_p: float
    """Valid over all looks and however many tasks were added: it blocks."""
    shrunk: float
    """The change drawn towards that of its family; `delta` where there is none."""
    unmeasured: bool = False
    """Too many attempts had no verdict: nothing is concluded from the rest."""
    warned: bool = False


@dataclass(frozen=True)
class Decision:
    """What is to be done with a candidate, and why."""

    kind: DecisionKind
    because: tuple[str, ...]
    warnings: tuple[str, ...]
    """Changes that may be chance, and do not block."""
    label: str
    """Of the candidate's report."""
    reference: str
    look: int
    """Counted from 1: which share of the error budget was spent."""
    domains: Mapping[str, DomainOutcome]
    total: tuple[float, Interval]
    """Mean change over domains that weigh equally, and its 95 % interval."""
    culprit: str | None = None
    """With ROLLBACK: of the domains that may not regress, the one with the most evidence."""

    @property
    def inconclusive(self) -> tuple[str, ...]:
        """Domains that more tasks might settle."""
        return tuple(
            name
            for name, domain in self.domains.items()
            if domain.outcome is Outcome.INCONCLUSIVE and not domain.unmeasured
        )


@dataclass(frozen=True)
class Look:
    """One version that stood before a gate: what was measured of it, and what was known beside that."""

    report: EvalReport
    audits: Mapping[str, Audit] = field(default_factory=dict)
    """By domain; those without are not there."""
