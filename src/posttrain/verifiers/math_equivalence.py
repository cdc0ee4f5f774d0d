"""Mathematical equivalence of final answers, by the policy in docs/verifiers.md, which is a table that is tested.

The reply's answer stands in its last `\\boxed{…}`, behind `Answer:`, or is the whole reply; the gold is boxed or plain.
Answers are read by a grammar of ours and never evaluated as a program. What is too long, deep or large is refused
before anything is computed; a bound on time is the affair of the worker that it runs in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from posttrain.core.types import Json, Verdict
from posttrain.verifiers.final_answer import Refused
from posttrain.verifiers.flags import Flag
from posttrain.verifiers.math.answers import Domain, Empty, Named, Sequence, Text, Unread, Value
from posttrain.verifiers.math.compare import Comparison
from posttrain.verifiers.math.expression import is_infinite
from posttrain.verifiers.math.final import final_answer, gold_answer
from posttrain.verifiers.math.limits import refusal
from posttrain.verifiers.math.reading import read
from posttrain.verifiers.math.tokens import tidy
from posttrain.verifiers.math.words import HEDGES


@dataclass(frozen=True)
class MathEquivalence:
    """Whether the reply's final answer is, as mathematics, the answer `gold`, such as `\\boxed{\\frac12}` or `0.5`.

    `Verdict.evidence["compared"]` says how: `text`, `exact`, `symbolic` or `library`.
    """

    version: ClassVar[str] = "1"

    def verify(self, reply: str, gold: Json) -> Verdict:
        wanted = _gold_text(gold)
        final = final_answer(reply)
        if isinstance(final, Refused):
            return final.verdict()
        refused = refusal(final.text)
        if refused is not None:
            return Verdict.incorrect(refused.reason, flags=(*final.flags, *refused.flags))
        return _verdict(final.text, final.flags, wanted)


def _gold_text(gold: Json) -> str:
    """Empty where the gold has a box that states no one answer, or is a program: nothing is equal to it."""
    if isinstance(gold, bool) or not isinstance(gold, str | int | float):
        raise ValueError(f"the expected answer must be text or a number, not {type(gold).__name__}")
    if not str(gold).strip():
        raise ValueError("the expected answer is empty")
    text = gold_answer(str(gold))
    refused = text if isinstance(text, Refused) else refusal(text)
    if refused is None:
        return str(text)
    if set(refused.flags) & {Flag.TOO_LONG, Flag.TOO_DEEP, Flag.TOO_LARGE}:
        raise ValueError(f"the expected answer cannot be used: {refused.reason}")
    return ""


def _verdict(answer: str, flags: tuple[str, ...], gold: str) -> Verdict:
    readings, wanted = read(answer), read(gold)
    shown = tidy(answer)
    if isinstance(readings[0], Empty):
        return Verdict.incorrect("the box is empty", flags=(*flags, Flag.NO_ANSWER))
    if isinstance(readings[0], Text) and HEDGES & set(readings[0].words.split()):
        return Verdict.incorrect("the answer is hedged", answer=shown, flags=(*flags, Flag.HEDGED))
    comparison = Comparison()
    if comparison.any_same(readings, wanted):
        same_text = shown == tidy(gold)
        how = "text" if same_text else "symbolic" if comparison.symbolic else "exact"
        return Verdict.correct(answer=shown, flags=flags, evidence={"compared": how})
    unread = isinstance(wanted[0], Unread) and len(wanted) == 1
    if unread and _unevaluated(wanted) == _unevaluated(readings):
        from posttrain.verifiers.math.library import same

        if same(gold, answer):
            return Verdict.correct(answer=shown, flags=flags, evidence={"compared": "library"})
    found = (*flags, *_signals(readings, wanted, comparison))
    how = "library" if unread else "symbolic" if comparison.symbolic else "exact"
    return Verdict.incorrect(_reason(found), answer=shown, flags=found, evidence={"compared": how})


def _unevaluated(readings: tuple[object, ...]) -> bool:
    return any(isinstance(reading, Unread) and reading.unevaluated for reading in readings)


def _signals(readings: tuple[object, ...], wanted: tuple[object, ...], comparison: Comparison) -> tuple[str, ...]:
    """What the reply did, beyond being another answer."""
    one_value = all(isinstance(gold, Value | Named) for gold in wanted)
    flags: list[str] = []
    if comparison.unevaluated or _unevaluated(readings):
        flags.append(Flag.UNEVALUATED)
    if comparison.undecided:
        flags.append(Flag.TOO_LARGE)
    if any(isinstance(one, Value) and is_infinite(one.expression) for one in readings):
        flags.append(Flag.NOT_FINITE)
    if one_value and all(isinstance(one, Sequence | Domain) for one in readings):
        flags.append(Flag.SEVERAL_ANSWERS)
    return tuple(flags)


_REASONS = {
    Flag.UNEVALUATED: "the answer is not worked out",
    Flag.TOO_LARGE: "the answer is too large to be compared",
    Flag.SEVERAL_ANSWERS: "the reply gives several answers where there is one",
}


def _reason(flags: tuple[str, ...]) -> str:
    return next((reason for flag, reason in _REASONS.items() if flag in flags), "the answer is another one")
