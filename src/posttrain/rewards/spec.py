"""How a domain's verdicts become rewards, as its user states it: parts, weights, gates, caps, levels of chance.

A part is a number in [0, 1] of one of four kinds. Only the outcome, and the process where it is trusted, pay by
themselves: format and efficiency may shut a gate, or add a bounded amount to attempts that are correct. A statement to
the contrary is refused with the reason, unless `allow` names it. It measures and computes nothing.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
from pydantic import ConfigDict

STRICT = ConfigDict(extra="forbid")

Kind = Literal["outcome", "process", "format", "efficiency"]
KINDS: tuple[Kind, ...] = ("outcome", "process", "format", "efficiency")
BONUS_KINDS = ("format", "efficiency")
"""What says nothing of whether the answer is right."""

SCORE, GRAMMAR = "score", "grammar"
COSTS = ("tokens", "tool_calls", "wall_s", "sandbox_s")

BONUS_SHARE = 0.5
"""Of the outcome's weight: as much may format and efficiency add together. Behind open gates the plainest right answer
then earns at least two thirds of what the tidiest and shortest does."""

Allowance = Literal["format_before_correctness", "large_bonus", "lowered_outcome"]


@dataclass(frozen=True)
class PartSpec:
    """One part of a reward. What is empty or absent is filled in when the whole is read, and recorded so."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    weight: float
    """0: the part is measured and recorded, may shut a gate, and pays nothing."""
    kind: Literal["outcome", "process", "format", "efficiency", ""] = ""
    """Empty: the part's own name."""
    source: str = ""
    """Where it is measured: "score", the verdict's; "grammar", the one for replies (`verifiers/reply_grammar.py`); what
    an attempt cost, "tokens", "tool_calls", "wall_s" or "sandbox_s"; any other is the name of a part of the verdict.
    Empty: the score for an outcome, the grammar for a format, tokens for efficiency, and else the part's own name."""
    cap: float | None = None
    """Largest weight that it may ever have; absent: the largest that `weight` and `schedule` give."""
    gate: float = 0.0
    """What the part must reach; below, nothing of the whole reward counts. 0: no gate."""
    null_level: float = 0.0
    """What a policy without skill scores: the part counts as (value − null level) / (1 − null level)."""
    budget: float = 0.0
    """Of efficiency: the cost at which nothing is earned; 0: the median cost of the group's correct attempts."""
    after_correctness: bool | None = None
    """Whether it counts in correct attempts alone; absent: as its kind does, format and efficiency only there."""
    schedule: list[tuple[int, float]] = field(default_factory=list)
    """Steps of a stage, counted from 1, and factors of the weight there: linear between them and constant outside."""

    def __post_init__(self) -> None:
        for name in ("weight", "budget", "cap"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value >= 0.0):
                raise ValueError(f"{name} must be at least 0 and finite, not {value}")
        if not 0.0 <= self.gate <= 1.0:
            raise ValueError(f"gate must lie in [0, 1], not {self.gate}")
        if not 0.0 <= self.null_level < 1.0:
            raise ValueError(f"null_level must lie in [0, 1), not {self.null_level}: at 1 there is nothing to learn")
        steps = [step for step, _ in self.schedule]
        if steps != sorted(set(steps)) or any(step < 1 for step in steps):
            raise ValueError(f"the steps of a schedule must rise, from 1 or later, not {steps}")
        if any(not (math.isfinite(factor) and factor >= 0.0) for _, factor in self.schedule):
            raise ValueError("the factors of a schedule must be at least 0 and finite")
        if self.cap is not None and self.most > self.cap:
            raise ValueError(f"the weight reaches {self.most:g}, above its cap of {self.cap:g}")

    @property
    def most(self) -> float:
        """The largest weight that `weight` and `schedule` give."""
        return self.weight * max((factor for _, factor in self.schedule), default=1.0)

    def weight_at(self, step: int, lowered: float = 1.0) -> float:
        """In step `step` of a stage, counted from 1. `lowered` in (0, 1] is what rules have left of it."""
        assert 0.0 < lowered <= 1.0, lowered
        factor = 1.0
        if self.schedule:
            steps, factors = zip(*self.schedule, strict=True)
            factor = float(np.interp(step, steps, factors))
        return self.weight * factor * lowered


@dataclass(frozen=True)
class RewardSpec:
    """All parts of a domain's reward, by name."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    parts: dict[str, PartSpec] = field(default_factory=lambda: {"outcome": PartSpec(1.0)})
    allow: list[Allowance] = field(default_factory=list)
    """Statements that are otherwise refused: a format that pays without being right, format and efficiency worth more
    than half of the outcome, an outcome whose weight falls."""

    def __post_init__(self) -> None:
        parts = {name: _filled(name, part) for name, part in self.parts.items()}
        object.__setattr__(self, "parts", parts)  # so that the run's record shows what acts
        found = [sentence for name, part in parts.items() for sentence in _of_one(name, part, self.allow)]
        if found := [*found, *_of_all(parts, self.allow)]:
            raise ValueError("; ".join(found))

    @property
    def plain(self) -> bool:
        """Whether there is one part, the outcome: its curve is the pass rate's."""
        return len(self.parts) == 1

    def weights_at(self, step: int, lowered: Mapping[str, float]) -> dict[str, float]:
        """Of every part in a step; `lowered` has the factors that rules have set, by the part's name."""
        return {name: part.weight_at(step, lowered.get(name, 1.0)) for name, part in self.parts.items()}


def _filled(name: str, part: PartSpec) -> PartSpec:
    kind = part.kind or next((kind for kind in KINDS if kind == name), "")
    if not kind:
        raise ValueError(f'part {name!r} needs a kind: "outcome", "process", "format" or "efficiency"')
    source = part.source or {"outcome": SCORE, "format": GRAMMAR, "efficiency": "tokens"}.get(kind, name)
    after = part.after_correctness if part.after_correctness is not None else kind in BONUS_KINDS
    cap = part.most if part.cap is None else part.cap
    return dataclasses.replace(part, kind=kind, source=source, after_correctness=after, cap=cap)


def _of_one(name: str, part: PartSpec, allow: list[Allowance]) -> list[str]:
    found = []
    if (part.source in COSTS) != (part.kind == "efficiency"):
        found.append(
            f"part {name!r} is of kind {part.kind} and measured by {part.source!r}: efficiency, and nothing else, is "
            f"measured by a cost ({', '.join(COSTS)})"
        )
    if part.source == GRAMMAR and part.kind != "format":
        found.append(f"part {name!r}: the grammar knows the form of a reply, and says nothing of its {part.kind}")
    if part.kind == "efficiency" and not part.after_correctness:
        found.append(f"part {name!r}: among wrong answers the shortest would win; efficiency counts in correct ones")
    if part.kind == "format" and not part.after_correctness and "format_before_correctness" not in allow:
        found.append(
            f"part {name!r} would pay for the form of wrong answers, which is learned sooner than the task: leave "
            'after_correctness out, or allow = ["format_before_correctness"]'
        )
    if part.kind == "outcome" and part.after_correctness:
        found.append(f"part {name!r} cannot wait for correctness: it is what says that an answer is correct")
    if part.kind == "outcome" and "lowered_outcome" not in allow and any(f < 1 for _, f in part.schedule):
        found.append(
            f"part {name!r} is what the others only guide to, and its schedule lowers it: lower the others, or "
            'allow = ["lowered_outcome"]'
        )
    if part.null_level and part.kind in BONUS_KINDS:
        found.append(f"part {name!r}: {part.kind} is no score that chance could reach: null_level is the outcome's")
    if part.budget and part.kind != "efficiency":
        found.append(f"part {name!r}: a budget has no effect on a part of kind {part.kind}")
    if part.gate and part.kind == "efficiency" and not part.budget:
        found.append(f"part {name!r}: half of the attempts are always below the median: a gate needs a budget")
    return found


def _of_all(parts: Mapping[str, PartSpec], allow: list[Allowance]) -> list[str]:
    outcome = math.fsum(part.weight for part in parts.values() if part.kind == "outcome")
    if not outcome > 0.0:
        return ['a reward needs a part of kind "outcome" with a weight above 0: without it nothing asks for the answer']
    bonus = math.fsum(part.cap or 0.0 for part in parts.values() if part.kind in BONUS_KINDS)
    if bonus > BONUS_SHARE * outcome and "large_bonus" not in allow:
        return [
            f"format and efficiency may add {bonus:g} in all, more than {BONUS_SHARE:g} times the outcome's weight of "
            f'{outcome:g}: lower their weights or caps, or allow = ["large_bonus"]'
        ]
    return []
