"""What a run is doing right now, as an observer hears it, and the words for it.

Kept by whoever listens (`progress`, `watchdog`); it prints nothing and measures time only by the clock it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass
class RunState:
    """Updated by the observer's own calls; times are the clock's."""

    clock: Callable[[], float]
    stage: str = ""
    total_steps: int | None = None
    steps_done: int = 0
    values: Mapping[str, float] = field(default_factory=dict)
    phase: str = "starting"
    phase_total: int | None = None
    phase_done: int = 0
    phase_started: float = 0.0
    _steps_seen: int = 0
    _first_step_ended: float = 0.0

    def __post_init__(self) -> None:
        self.phase_started = self.clock()

    def begin_stage(self, name: str, total_steps: int | None, done: int = 0) -> None:
        self.stage, self.total_steps = name, total_steps
        self.steps_done, self._steps_seen, self.values = done, 0, {}

    def begin_phase(self, name: str, total: int | None) -> None:
        self.phase, self.phase_total, self.phase_done = name, total, 0
        self.phase_started = self.clock()

    def end_step(self, step: int, values: Mapping[str, float]) -> None:
        self.steps_done, self.values = step, dict(values)
        self._steps_seen += 1
        if self._steps_seen == 1:
            self._first_step_ended = self.clock()

    @property
    def phase_s(self) -> float:
        return self.clock() - self.phase_started

    @property
    def left_s(self) -> float | None:
        """Seconds to the end of the stage at the pace after this process's first step, which also warms everything
        up; None before its second, or where the stage has no end."""
        if self.total_steps is None or self._steps_seen < 2:
            return None
        pace = (self.clock() - self._first_step_ended) / (self._steps_seen - 1)
        return pace * max(0, self.total_steps - self.steps_done)

    def steps(self) -> str:
        """`rl 3/100`, or the name alone where a stage has no steps; empty outside a stage."""
        if self.total_steps is None:
            return self.stage
        return f"{self.stage} {self.steps_done}/{self.total_steps}"

    def doing(self) -> str:
        """`generating 40/128, 12 s`."""
        done = f" {self.phase_done}/{self.phase_total}" if self.phase_total is not None else ""
        if self.phase_total is None and self.phase_done:
            done = f" {self.phase_done}"
        return f"{self.phase}{done}, {duration(self.phase_s)}"


def headline(values: Mapping[str, float]) -> list[str]:
    """The numbers of a step that a person looks at first, those that are there."""
    parts = []
    for name, text in (("reward", "reward {:.3f}"), ("loss", "loss {:.4f}"), ("validation_loss", "validation {:.4f}")):
        if name in values and not (name == "loss" and "reward" in values):
            parts.append(text.format(values[name]))
    if rates := pass_rates(values):
        parts.append("pass " + " ".join(f"{domain} {rate:.2f}" for domain, rate in rates.items()))
    if "tokens_per_s" in values:
        parts.append(f"{values['tokens_per_s']:.0f} tokens/s")
    return parts


def pass_rates(values: Mapping[str, float]) -> dict[str, float]:
    """By domain, from the values named `pass/DOMAIN`."""
    return {name.removeprefix("pass/"): value for name, value in values.items() if name.startswith("pass/")}


def duration(seconds: float) -> str:
    """`12 s`, `3:05`, `1:02:03`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, second = divmod(whole, 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"
