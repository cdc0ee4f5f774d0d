"""What next: every domain gets its share exactly, over short stretches too. Implements `core.protocols.Mixture`.

A pure function of its state, which is what it has given: resumed from `state()`, it goes on with the same tasks
(law L21). It does not adapt: what it observes is shown and changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field

from posttrain.core.errors import ConfigError, OverlapError, StoppedByRuleError
from posttrain.core.protocols import Domain
from posttrain.core.seeding import stable_random
from posttrain.core.types import Group, Json, Split, Task

FORGETTING = 0.95
"""Weight that a domain's observed attempts keep at each of its later groups."""
MAX_SKIPS = 1000
"""Excluded tasks in a row after which a domain counts as having no other."""


@dataclass
class _Tally:
    """One domain's state: tasks given and skipped are its data cursor, the rest is for display."""

    given: int = 0
    skipped: int = 0
    attempts: float = 0.0
    passed: float = 0.0
    paused: bool = False
    before: int = 0
    """Given when a domain was last paused or taken up again: shares are kept from there on."""


@dataclass
class Stratified:
    """Fixed shares. After n tasks a domain has been given n × its share, give or take less than one.

    Over a stretch that begins later the error is the difference of two such errors: less than two, and less than one
    where shares are equal. (Less than one over every stretch is impossible for most shares of three or more domains.)
    """

    domains: Mapping[str, Domain]
    weights: Mapping[str, float]
    """Relative shares; 0 leaves a domain out."""
    levels: Mapping[str, int | Mapping[int, float]]
    """Of each domain: its level, or the relative frequency of several."""
    seed: int = 0
    """Of the tasks and the levels."""
    excluded: frozenset[str] = frozenset()
    """Task ids never given, such as the evaluation suite's; with disjoint splits nothing is ever skipped."""
    _tallies: dict[str, _Tally] = field(init=False, repr=False)
    _shares: dict[str, float] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for what, mapping in (("weight", self.weights), ("level", self.levels)):
            if mapping.keys() != self.domains.keys():
                raise ConfigError(f"the domains {sorted(self.domains)} need a {what} each, not {sorted(mapping)}")
        for name, domain in self.domains.items():
            if not (math.isfinite(self.weights[name]) and self.weights[name] >= 0.0):
                raise ConfigError(f"the weight of domain {name} must be at least 0, not {self.weights[name]}")
            _check_levels(domain, self._levels(name))
        total = math.fsum(self.weights.values())
        if not total > 0.0:
            raise ConfigError("no domain of the mixture has a weight above 0")
        self._tallies = {name: _Tally() for name in sorted(self.domains)}
        self._shares = {name: self.weights[name] / total for name in self._tallies if self.weights[name] > 0.0}

    def next(self) -> Task:
        """Raises `OverlapError` where the domain whose turn it is has only excluded tasks left."""
        name = self._most_urgent()
        tally = self._tallies[name]
        for _ in range(MAX_SKIPS):
            task = self._task(name, tally.given + tally.skipped)
            if task.task_id not in self.excluded:
                tally.given += 1
                return task
            tally.skipped += 1
        raise OverlapError(f"domain {name} gave {MAX_SKIPS} training tasks in a row that are evaluation tasks")

    def pause(self, domains: Collection[str]) -> None:
        """From the next task on, these domains give none and the others share their turns. It replaces what was paused
        before. Raises `StoppedByRuleError` where no domain would be left."""
        wanted = {name for name in self._shares if name in domains}
        if wanted == {name for name, tally in self._tallies.items() if tally.paused}:
            return
        if len(wanted) == len(self._shares):
            raise StoppedByRuleError(f"every domain is paused: {', '.join(sorted(wanted))}")
        for name, tally in self._tallies.items():
            tally.paused, tally.before = name in wanted, tally.given

    def observe(self, group: Group) -> None:
        """Keep a running pass rate of scored attempts."""
        tally = self._tallies[group.task.domain]
        scores = [t.verdict.score for t in group.trajectories if t.scored and t.verdict is not None]
        tally.attempts = tally.attempts * FORGETTING + len(scores)
        tally.passed = tally.passed * FORGETTING + math.fsum(scores)

    def pass_rates(self) -> dict[str, float]:
        """Of recent attempts, by domain; a domain without any is left out."""
        return {name: tally.passed / tally.attempts for name, tally in self._tallies.items() if tally.attempts > 0.0}

    def skipped(self) -> dict[str, int]:
        """Excluded tasks that were passed over, by domain."""
        return {name: tally.skipped for name, tally in self._tallies.items()}

    def state(self) -> Json:
        return {name: asdict(tally) for name, tally in self._tallies.items()}

    def load_state(self, state: Json) -> None:
        """Raises `ConfigError` where the state is of other domains."""
        if state.keys() != self._tallies.keys():
            raise ConfigError(f"the mixture has domains {sorted(self._tallies)}; its saved state has {sorted(state)}")
        self._tallies = {name: _Tally(**state[name]) for name in self._tallies}

    def _most_urgent(self) -> str:
        """The domain that may wait the least before it lags too far, among those that are due; ties go by name.

        Tijdeman's rule (1980, "The chairman assignment problem", Discrete Mathematics 32), which keeps every deficit
        within 1 − 1/(2D − 2). Giving to the largest deficit instead leaves rare domains more than one task behind
        where many of them fall due at once.
        """
        shares = self._present_shares()
        slack = 1.0 / max(1, 2 * len(shares) - 2)
        turn = 1 + sum(tally.given - tally.before for tally in self._tallies.values())
        due: list[tuple[float, str]] = []
        for name, share in shares.items():
            deficit = turn * share - (self._tallies[name].given - self._tallies[name].before)
            if deficit >= slack - 1e-9:
                due.append(((1.0 - slack - deficit) / share, name))
        return min(due)[1]

    def _present_shares(self) -> dict[str, float]:
        """Of the domains that are not paused."""
        shares = {name: share for name, share in self._shares.items() if not self._tallies[name].paused}
        if len(shares) == len(self._shares):
            return shares
        total = math.fsum(shares.values())
        return {name: share / total for name, share in shares.items()}

    def _task(self, name: str, index: int) -> Task:
        levels = self._levels(name)
        draw = stable_random("level", self.seed, name, index)
        (level,) = draw.choices(list(levels), list(levels.values()))
        return self.domains[name].task(Split.TRAIN, self.seed, index, level)

    def _levels(self, name: str) -> Mapping[int, float]:
        levels = self.levels[name]
        return {levels: 1.0} if isinstance(levels, int) else dict(sorted(levels.items()))


def _check_levels(domain: Domain, levels: Mapping[int, float]) -> None:
    for level, weight in levels.items():
        if not 1 <= level <= domain.levels:
            raise ConfigError(f"domain {domain.name} has levels 1 to {domain.levels}, not {level}")
        if not (math.isfinite(weight) and weight >= 0.0):
            raise ConfigError(f"level {level} of domain {domain.name} must have a weight of at least 0, not {weight}")
    if not math.fsum(levels.values()) > 0.0:
        raise ConfigError(f"no level of domain {domain.name} has a weight above 0")
