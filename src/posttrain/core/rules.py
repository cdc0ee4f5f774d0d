"""The one rule engine: conditions over recorded metrics → what is to be done.

`evaluate` is a pure function of rules and history; `RuleEngine` is the same function, fed step by step, so replaying
the records that a run has left gives back the engine's whole state (law L21). A record's values are names with
numbers; a name that is missing says nothing, and a number that is not finite is neither above nor below anything:
infinities come back from the metrics file as NaN, and a replay must see what the run saw.

What an action does is the affair of whoever asked: nothing here touches a run.
"""

from __future__ import annotations

import enum
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import ClassVar, Protocol

from pydantic import ConfigDict


class StepRecord(Protocol):
    """One step's numbers, as `store.metrics.MetricsRecord` has them."""

    @property
    def step(self) -> int: ...
    @property
    def values(self) -> Mapping[str, float]: ...


class Comparison(enum.StrEnum):
    ABOVE = "above"
    BELOW = "below"
    NOT_FINITE = "not_finite"


class Baseline(enum.StrEnum):
    """What a threshold is a multiple of: a median over `window` finite values of the same metric."""

    START = "start"
    """The first ones of the history."""
    RECENT = "recent"
    """The last ones before the step in question."""


class Action(enum.StrEnum):
    WARN = "warn"
    LOWER_RATE = "lower_rate"
    """Multiply the learning rate by the rule's `factor`, from the next step on."""
    QUARANTINE = "quarantine"
    """Keep the attempts that the metric counts out of the gradient, those of this very step on; of a metric that ends
    with a domain's name, that domain's."""
    PAUSE = "pause"
    """Draw no more tasks of the domain whose name ends the metric's."""
    STOP = "stop"
    LOWER_PART = "lower_part"
    """Multiply the weight of one part of one domain's reward by `factor`; the metric's name ends with DOMAIN/PART."""
    ROLL_BACK = "roll_back"
    """Return to the last good checkpoint, with the learning rate multiplied by `factor` and other random draws."""


@dataclass(frozen=True)
class Rule:
    """A condition on one metric, or on each metric of a family, and the action when it holds long enough."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    name: str
    metric: str
    """A recorded name, or a pattern such as "pass/*": each metric that matches is watched by itself."""
    when: Comparison
    threshold: float | None = None
    """In the metric's unit or, where `relative_to` is given, a multiple of the baseline."""
    relative_to: Baseline | None = None
    """A baseline that is incomplete, zero or negative has no multiples: the condition does not hold."""
    window: int = 10
    """Values that the baseline is the median of."""
    for_steps: int = 1
    """Measured steps in a row in which the condition must hold; a step without the metric is not counted."""
    after_step: int = 0
    """The first steps of a history, in which the condition is not looked at; the baseline is."""
    cooldown_steps: int = 20
    """Steps after a firing in which the rule does not fire again for the same metric; 0: it may in the next one."""
    action: Action = Action.WARN
    factor: float = 0.5
    """Of the learning rate or of the part's weight, where the action changes it."""
    why: str = ""
    """Completes the sentence: what it means that the condition holds."""

    def __post_init__(self) -> None:
        if not self.name or not self.metric:
            raise ValueError("a rule needs a name and a metric")
        if self.when is Comparison.NOT_FINITE:
            if self.threshold is not None or self.relative_to is not None:
                raise ValueError(f'rule {self.name}: "not_finite" takes neither threshold nor relative_to')
        elif self.threshold is None or not math.isfinite(self.threshold):
            raise ValueError(f'rule {self.name}: "{self.when}" needs a finite threshold, not {self.threshold}')
        if self.window < 1 or self.for_steps < 1 or self.after_step < 0 or self.cooldown_steps < 0:
            raise ValueError(
                f"rule {self.name}: window and for_steps must be at least 1, after_step and cooldown_steps at least 0"
            )
        if self.relative_to is Baseline.RECENT and self.for_steps > max(1, self.window // 2):
            raise ValueError(
                f"rule {self.name}: a recent median follows a change within {max(1, self.window // 2)} steps; "
                f"for_steps must not be more, or window must be at least {2 * self.for_steps}"
            )
        lowers = self.action in (Action.LOWER_RATE, Action.LOWER_PART)
        if not 0.0 < self.factor <= 1.0 or (self.factor == 1.0 and lowers):
            what = "a part's weight" if self.action is Action.LOWER_PART else "the learning rate"
            raise ValueError(f"rule {self.name}: factor must lower {what}, to more than 0, not {self.factor}")
        if self.action is Action.LOWER_PART and self.metric.count("/") < 2:
            raise ValueError(
                f'rule {self.name}: "lower_part" needs a metric that ends with DOMAIN/PART, such as '
                f'"reward_saturated/*/format", not "{self.metric}"'
            )

    def watched(self, values: Mapping[str, float]) -> Iterator[tuple[str, float]]:
        """The metrics of one record that this rule is about, by name in order."""
        if self.metric in values:
            yield self.metric, values[self.metric]
        elif any(character in self.metric for character in "*?["):
            yield from ((name, values[name]) for name in sorted(values) if fnmatchcase(name, self.metric))


@dataclass(frozen=True)
class Firing:
    """One rule, one metric, one step."""

    rule: Rule
    metric: str
    step: int
    value: float
    limit: float | None
    """What the value was compared with, in the metric's unit; None for "not_finite"."""
    held_steps: int
    """Measured steps in a row in which the condition has held, this one included."""

    @property
    def sentence(self) -> str:
        """What was seen, for people, and why it matters."""
        rule = self.rule
        if self.limit is None:
            seen = f"{self.metric} was not finite in step {self.step}"
        else:
            seen = f"{self.metric} was {self.value:.3g} in step {self.step}, {rule.when} {self.limit:.3g}"
        if rule.relative_to is not None:
            of = "first" if rule.relative_to is Baseline.START else "last"
            seen += f" ({rule.threshold:g} times its median over the {of} {rule.window} steps)"
        if self.held_steps > 1:
            seen += f", for {self.held_steps} steps in a row"
        return f"{seen}: {rule.why}" if rule.why else seen


@dataclass
class _Track:
    """What one rule remembers of one metric."""

    baseline: list[float] = field(default_factory=list)
    """Finite values: the first `window`, or the last."""
    held_steps: int = 0
    fired_at: int | None = None

    def look(self, rule: Rule, metric: str, step: int, value: float) -> Firing | None:
        limit = self._limit(rule)
        self._remember(rule, value)
        if step <= rule.after_step:
            return None
        self.held_steps = self.held_steps + 1 if _holds(rule.when, value, limit) else 0
        cooled = self.fired_at is None or step > self.fired_at + rule.cooldown_steps
        if self.held_steps < rule.for_steps or not cooled:
            return None
        self.fired_at = step
        return Firing(rule, metric, step, value, limit, self.held_steps)

    def _limit(self, rule: Rule) -> float | None:
        if rule.relative_to is None or rule.threshold is None:
            return rule.threshold
        if len(self.baseline) < rule.window:
            return None
        median = statistics.median(self.baseline)
        return rule.threshold * median if median > 0.0 else None

    def _remember(self, rule: Rule, value: float) -> None:
        if rule.relative_to is None or not math.isfinite(value):
            return
        if rule.relative_to is Baseline.RECENT:
            self.baseline = [*self.baseline, value][-rule.window :]
        elif len(self.baseline) < rule.window:
            self.baseline.append(value)


class RuleEngine:
    """Rules fed with the records of one history, whose steps rise."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules = tuple(rules)
        self._tracks: dict[tuple[int, str], _Track] = {}

    def observe(self, record: StepRecord) -> list[Firing]:
        """The firings of this step, in the order of the rules."""
        firings = []
        for number, rule in enumerate(self._rules):
            for metric, value in rule.watched(record.values):
                track = self._tracks.setdefault((number, metric), _Track())
                firing = track.look(rule, metric, record.step, value)
                if firing is not None:
                    firings.append(firing)
        return firings

    def holding(self) -> list[Rule]:
        """Rules whose condition held when their metric was last measured, fired or not yet."""
        return [self._rules[number] for (number, _), track in self._tracks.items() if track.held_steps > 0]


def evaluate(rules: Iterable[Rule], history: Sequence[StepRecord]) -> list[Firing]:
    """Every firing in a history of one stage: what `RuleEngine` says of it from its first record to its last."""
    engine = RuleEngine(rules)
    return [firing for record in history for firing in engine.observe(record)]


def _holds(when: Comparison, value: float, limit: float | None) -> bool:
    if when is Comparison.NOT_FINITE:
        return not math.isfinite(value)
    if limit is None or not math.isfinite(value):
        return False
    return value > limit if when is Comparison.ABOVE else value < limit
