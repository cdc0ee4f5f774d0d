"""A gate's rules as its user states them: `[stages.gate]` of a configuration, or the file of `posttrain gate --rules`.

Nothing is evaluated here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import ClassVar, Literal

from pydantic import ConfigDict


@dataclass(frozen=True)
class GateSpec:
    """What a version must show to be promoted, and what has it rolled back."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    may_not_regress: list[str] = field(default_factory=lambda: ["*"])
    """Names or patterns: a regression of such a domain asks for ROLLBACK, and PROMOTE needs a pass in each. A
    regression elsewhere is a HOLD."""
    margin: float = 0.05
    """Loss of score that a domain must exclude to pass."""
    margins: dict[str, float] = field(default_factory=dict)
    """By name or pattern, where it differs; the first that fits."""
    alpha: float = 0.05
    """Chance of even one false REGRESS over all looks and domains; of a false PASS, in each domain."""
    warn_rate: float = 0.1
    """Expected share of false alarms among a look's warnings."""
    looks: int = 20
    """Versions that will stand before the gate: the error budget is divided among so many. More may come, at less."""
    max_doublings: int = 2
    """How often a domain that is inconclusive gets as many new tasks as it had; inconclusive at the end is a HOLD."""
    total_must_improve: bool = True
    """PROMOTE needs a mean over all domains that is above the reference's at 95 %."""
    max_no_verdict_share: float = 0.02
    """Of a domain's attempts; above it nothing is concluded from that domain."""
    min_precision: float = 0.0
    """Audited, of every domain's verdicts; 0: not asked for."""
    min_reviewed: int = 0
    """Attempts of every domain that people must have looked at; 0: not asked for."""
    families: dict[str, list[str]] = field(default_factory=dict)
    """Names or patterns of domains that are alike, by family: their estimates are drawn towards one another."""
    on_rollback: Literal["smaller_step", "without_domain"] = "smaller_step"
    """How a stage goes on from the reference: with a smaller learning rate, or without the domain that regressed."""
    factor: float = 0.5
    """Of the learning rate, with "smaller_step"."""

    def __post_init__(self) -> None:
        for name in ("margin", "alpha", "warn_rate", "factor"):
            if not 0.0 < getattr(self, name) < 1.0:
                raise ValueError(f"{name} must lie between 0 and 1, not be {getattr(self, name)}")
        for name in ("max_no_verdict_share", "min_precision"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} must lie in [0, 1], not be {getattr(self, name)}")
        for pattern, margin in self.margins.items():
            if not (math.isfinite(margin) and 0.0 < margin < 1.0):
                raise ValueError(f"the margin of {pattern} must lie between 0 and 1, not be {margin}")
        if self.looks < 1 or not 0 <= self.max_doublings <= 10 or self.min_reviewed < 0:
            raise ValueError("looks must be at least 1, max_doublings from 0 to 10, min_reviewed at least 0")

    def guards(self, domain: str) -> bool:
        """Whether this domain may not regress."""
        return _fits(domain, self.may_not_regress)

    def margin_of(self, domain: str) -> float:
        return next((margin for pattern, margin in self.margins.items() if _fits(domain, [pattern])), self.margin)

    def family_of(self, domain: str) -> str | None:
        return next((family for family, patterns in self.families.items() if _fits(domain, patterns)), None)

    def by_family(self, domains: Mapping[str, object]) -> dict[str, list[str]]:
        """The domains of each family that has any, in their order."""
        found: dict[str, list[str]] = {}
        for domain in domains:
            if (family := self.family_of(domain)) is not None:
                found.setdefault(family, []).append(domain)
        return found


def _fits(domain: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(domain, pattern) for pattern in patterns)
