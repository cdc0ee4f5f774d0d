"""What the rules say of a stage while it runs, and what the loop has to do about it.

`Health` is a function of the rules, the stage's records up to now and the roll-backs so far; the records are read
back and the roll-backs stand in the checkpoint, so a resumed run goes on as the other would have (law L21). It
touches neither learner nor files: the loop carries out what a `Response` asks for.

A roll-back is a resume from the last good checkpoint with one more `RollBack` in the list: the records behind that
checkpoint are cut off, the learning rate is lowered for good, and sampling draws from other streams, since the same
weights, tasks and draws would fail the same way.

Quarantine acts before a step is learned from, so its rules are shown what the detectors saw first (`look`); all others
see the whole record. A paused domain stays paused to the end of its stage, or until its verifier is another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from posttrain.core.rules import Action, Firing, Rule, RuleEngine, StepRecord

CALM = (Action.WARN, Action.LOWER_PART)
"""Actions that do not say that the policy is in trouble."""

QUIET_STEPS = 10
"""Steps that must have passed since the last trouble for a checkpoint to be good."""


@dataclass(frozen=True)
class RollBack:
    """One return to a good checkpoint. Plain data, kept in every later checkpoint of the stage."""

    from_step: int
    """Whose firing asked for it."""
    factor: float
    """Of the learning rate, from then on."""
    reason: str


@dataclass(frozen=True)
class Pause:
    """A domain that gives no tasks any more."""

    from_step: int
    """After which it was paused."""
    reason: str


@dataclass(frozen=True)
class DetectorStep:
    """What the detectors saw in one step, before it is learned from."""

    step: int
    values: Mapping[str, float]


@dataclass(frozen=True)
class Response:
    """What the loop is to do after a step. At most one of `stop` and `roll_back` is given."""

    sentences: tuple[str, ...] = ()
    """One for each firing."""
    lowered: Mapping[str, str] = field(default_factory=dict)
    """Parts of rewards, DOMAIN/PART, whose weight falls from the next step on, and why."""
    stop: str | None = None
    """Why the run must end."""
    roll_back: RollBack | None = None


class Health:
    """The rules' view of one stage. Make a new one where records are cut off: on resume and after a roll-back."""

    def __init__(
        self,
        rules: Sequence[Rule],
        history: Sequence[StepRecord] = (),
        roll_backs: Sequence[RollBack] = (),
        *,
        max_roll_backs: int = 2,
        lifted: Mapping[str, int] | None = None,
    ) -> None:
        """`history` are the stage's own records up to the present step; `roll_backs` the stage's, in order; `lifted`
        the domains whose verifier was changed, with the step up to which pauses are void."""
        self._engine = RuleEngine([rule for rule in rules if rule.action is not Action.QUARANTINE])
        self._quarantine = RuleEngine([rule for rule in rules if rule.action is Action.QUARANTINE])
        self._lifted = dict(lifted or {})
        self._quarantines: dict[str, str] = {}
        self._pauses: dict[str, Pause] = {}
        self._seen: list[Firing] = []
        self._max_roll_backs = max_roll_backs
        self.roll_backs = tuple(roll_backs)
        self._learning_rate_factor = 1.0
        for roll_back in self.roll_backs:
            self._learning_rate_factor *= roll_back.factor
        self._part_factors: dict[str, float] = {}
        self._step = 0
        self._troubled_at: int | None = None
        for record in history:
            self._look(record)
            self._take(record)
        self._seen = []

    @property
    def quarantines(self) -> Mapping[str, str]:
        """The metrics whose attempts are kept out of the gradient, with the reason."""
        return self._quarantines

    def look(self, step: int, values: Mapping[str, float]) -> None:
        """Take in what the detectors saw in the step that is about to be learned from."""
        self._look(DetectorStep(step, values))

    def paused(self, after_step: int) -> dict[str, str]:
        """Domains that were paused after this step or an earlier one, with the reason."""
        return {domain: pause.reason for domain, pause in self._pauses.items() if pause.from_step <= after_step}

    @property
    def learning_rate_factor(self) -> float:
        """Of the schedule's learning rate, for the next step."""
        return self._learning_rate_factor

    @property
    def part_factors(self) -> dict[str, float]:
        """Of the weights of parts of rewards, by DOMAIN/PART, for the next step; those that no rule has lowered are
        left out."""
        return dict(self._part_factors)

    @property
    def good(self) -> bool:
        """Whether a checkpoint written now is one to return to.

        It is when no rule with an action that is not `CALM` has fired in the last `QUIET_STEPS` steps, or holds by now.
        """
        if self._troubled_at is not None and self._step - self._troubled_at < QUIET_STEPS:
            return False
        return all(rule.action in CALM for rule in self._engine.holding())

    def values(self) -> dict[str, float]:
        """For the record of the step being done."""
        paused = {f"paused/{domain}": 1.0 for domain in sorted(self.paused(self._step))}
        return {"roll_backs": float(len(self.roll_backs)), **paused}

    def observe(self, record: StepRecord) -> Response:
        """Take in the step that was just recorded, which comes after those of the history."""
        firings = [*self._seen, *self._take(record)]
        self._seen = []
        sentences = tuple(firing.sentence for firing in firings)
        lowered = {part_of(f.metric): f.sentence for f in firings if f.rule.action is Action.LOWER_PART}
        stops = [firing.sentence for firing in firings if firing.rule.action is Action.STOP]
        if stops:
            return Response(sentences, lowered, stop=stops[0])
        returns = [firing for firing in firings if firing.rule.action is Action.ROLL_BACK]
        if not returns:
            return Response(sentences, lowered)
        if len(self.roll_backs) >= self._max_roll_backs:
            spent = f"roll-backs so far: {len(self.roll_backs)}, and no more are allowed"
            return Response(sentences, lowered, stop=f"{returns[0].sentence} ({spent})")
        factor = min(firing.rule.factor for firing in returns)
        return Response(sentences, lowered, roll_back=RollBack(record.step, factor, returns[0].sentence))

    def _look(self, record: StepRecord) -> None:
        self._seen = self._quarantine.observe(record)
        for firing in self._seen:
            self._quarantines.setdefault(firing.metric, firing.sentence)

    def _take(self, record: StepRecord) -> list[Firing]:
        self._step = record.step
        firings = self._engine.observe(record)
        for firing in firings:
            if firing.rule.action is Action.LOWER_RATE:
                self._learning_rate_factor *= firing.rule.factor
            if firing.rule.action is Action.PAUSE:
                self._pause(firing)
            if firing.rule.action is Action.LOWER_PART:
                part = part_of(firing.metric)
                self._part_factors[part] = self._part_factors.get(part, 1.0) * firing.rule.factor
            if firing.rule.action not in CALM:
                self._troubled_at = record.step
        return firings

    def _pause(self, firing: Firing) -> None:
        domain = firing.metric.rpartition("/")[2]
        if firing.step > self._lifted.get(domain, 0):
            self._pauses.setdefault(domain, Pause(firing.step, firing.sentence))


def part_of(metric: str) -> str:
    """DOMAIN/PART of a metric that ends with it, such as "audit/agreement/DOMAIN/PART"."""
    return "/".join(metric.split("/")[-2:])
