"""Reasoning whose steps are checked: every statement of arithmetic or logic that can be read is computed.

The final answer is judged by another verifier, named by an option, and gives status and score; the share of steps that
hold is the part `process`. A step that comes again counts once. Where no step can be checked, `process` is 0 and the
verdict says so. `gold` is the other verifier's. Nothing is evaluated (`arithmetic_text.py`).
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from posttrain.core import registry
from posttrain.core.protocols import Verifier
from posttrain.core.types import Json, Verdict, VerdictStatus
from posttrain.verifiers.arithmetic_text import UnreadableError, holds, statements
from posttrain.verifiers.final_answer import MAX_REPLY_CHARACTERS
from posttrain.verifiers.flags import Flag

MAX_SHOWN_CHARACTERS = 200


@dataclass(frozen=True)
class StepReport:
    """What was checked of a text: different steps, in order."""

    checked: int
    held: int
    first_wrong: str = ""
    """As it stands in the text; empty where all hold."""

    @property
    def share(self) -> float:
        return self.held / self.checked if self.checked else 0.0


@dataclass(frozen=True)
class Steps:
    """The outcome's verdict, with the part `process` and the first wrong step."""

    outcome: Mapping[str, Any] | str = "number"
    """A verifier of text, by name or as `{"name": …, options…}`."""

    version: ClassVar[str] = "1"

    def __post_init__(self) -> None:
        if inspect.iscoroutinefunction(type(self._outcome).verify):
            raise ValueError("the outcome of steps must be judged by a verifier of text, without a sandbox")

    @functools.cached_property
    def _outcome(self) -> Verifier:
        return registry.build("verifier", self.outcome)  # type: ignore[no-any-return]

    def verify(self, reply: str, gold: Json) -> Verdict:
        verdict = self._outcome.verify(reply, gold)
        if verdict.status is VerdictStatus.NO_VERDICT:
            return verdict
        report = check_steps(reply) if len(reply) <= MAX_REPLY_CHARACTERS else StepReport(0, 0)
        flags = [Flag.NO_CHECKABLE_STEP] if not report.checked else [Flag.WRONG_STEP] if report.first_wrong else []
        return dataclasses.replace(
            verdict,
            parts={**verdict.parts, "outcome": verdict.score, "process": report.share},
            evidence={
                **verdict.evidence,
                "checked_steps": report.checked,
                "held_steps": report.held,
                "first_wrong_step": report.first_wrong,
            },
            flags=(*verdict.flags, *flags),
        )


def check_steps(text: str) -> StepReport:
    """Of the statements in `text` that can be read."""
    seen: dict[str, bool] = {}
    for statement in statements(text):
        try:
            seen.setdefault(str(statement), holds(statement))
        except UnreadableError:
            continue
    wrong = next((step for step, good in seen.items() if not good), "")
    return StepReport(len(seen), sum(seen.values()), wrong[:MAX_SHOWN_CHARACTERS])
