"""What the rules say of a stage while it runs, and what the loop has to do about it.

`Health` is a function of the rules, the stage's records up to now and the roll-backs so far; the records are read
back and the roll-backs stand in the checkpoint, so a resumed run goes on as the other would have (law L21). It
touches neither learner nor files: the loop carries out what a `Response` asks for.

A roll-back is a resume from the last good checkpoint with one more `RollBack` in the list: the records behind that
checkpoint are cut off, the learning rate is lowered for good, and sampling draws from other streams, since the same
weights, tasks and draws would fail the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from posttrain.core.rules import Action, Firing, Rule, RuleEngine, StepRecord

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
class Response:
    """What the loop is to do after a step. At most one of `stop` and `roll_back` is given."""

    sentences: tuple[str, ...] = ()
    """One for each firing."""
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
    ) -> None:
        """`history` are the stage's own records up to the present step; `roll_backs` the stage's, in order."""
        self._engine = RuleEngine(rules)
        self._max_roll_backs = max_roll_backs
        self.roll_backs = tuple(roll_backs)
        self._learning_rate_factor = 1.0
        for roll_back in self.roll_backs:
            self._learning_rate_factor *= roll_back.factor
        self._step = 0
        self._troubled_at: int | None = None
        for record in history:
            self._take(record)

    @property
    def learning_rate_factor(self) -> float:
        """Of the schedule's learning rate, for the next step."""
        return self._learning_rate_factor

    @property
    def good(self) -> bool:
        """Whether a checkpoint written now is one to return to.

        It is when no rule that does more than warn has fired in the last `QUIET_STEPS` steps, or holds by now.
        """
        if self._troubled_at is not None and self._step - self._troubled_at < QUIET_STEPS:
            return False
        return all(rule.action is Action.WARN for rule in self._engine.holding())

    def values(self) -> dict[str, float]:
        """For the record of the step being done."""
        return {"roll_backs": float(len(self.roll_backs))}

    def observe(self, record: StepRecord) -> Response:
        """Take in the step that was just recorded, which comes after those of the history."""
        firings = self._take(record)
        sentences = tuple(firing.sentence for firing in firings)
        stops = [firing.sentence for firing in firings if firing.rule.action is Action.STOP]
        if stops:
            return Response(sentences, stop=stops[0])
        returns = [firing for firing in firings if firing.rule.action is Action.ROLL_BACK]
        if not returns:
            return Response(sentences)
        if len(self.roll_backs) >= self._max_roll_backs:
            spent = f"roll-backs so far: {len(self.roll_backs)}, and no more are allowed"
            return Response(sentences, stop=f"{returns[0].sentence} ({spent})")
        factor = min(firing.rule.factor for firing in returns)
        return Response(sentences, roll_back=RollBack(record.step, factor, returns[0].sentence))

    def _take(self, record: StepRecord) -> list[Firing]:
        self._step = record.step
        firings = self._engine.observe(record)
        for firing in firings:
            if firing.rule.action is Action.LOWER_RATE:
                self._learning_rate_factor *= firing.rule.factor
            if firing.rule.action is not Action.WARN:
                self._troubled_at = record.step
        return firings
