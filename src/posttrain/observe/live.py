"""The live display: three lines on a terminal that are redrawn while a run goes on; what is finished scrolls up.

Redrawn four times a second by rich's own thread. Colours go where `NO_COLOR` is set. It records nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from posttrain.observe.run_state import RunState, duration, headline, pass_rates

BAR_WIDTH = 24


def can_redraw(stream: TextIO) -> bool:
    """Whether the terminal behind `stream` can move its cursor (`TERM=dumb` cannot)."""
    console = Console(file=stream)
    return console.is_terminal and not console.is_dumb_terminal


class LiveProgress:
    """The stage and its steps, the phase and how far it is, and each domain's pass rate."""

    def __init__(self, stream: TextIO) -> None:
        self._console = Console(file=stream, highlight=False)
        self._state = RunState(time.monotonic)
        self._lock = threading.RLock()
        self._spinner = Spinner("dots", style="cyan")
        self._live = Live(
            console=self._console,
            get_renderable=self._render,
            refresh_per_second=4,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()

    def stage(self, name: str, total_steps: int | None, done: int = 0) -> None:
        self._leave_stage()
        with self._lock:
            self._state.begin_stage(name, total_steps, done)

    def phase(self, name: str, total: int | None = None) -> None:
        with self._lock:
            self._state.begin_phase(name, total)

    def advance(self, amount: int = 1) -> None:
        with self._lock:
            self._state.phase_done += amount

    def step(self, step: int, values: Mapping[str, float]) -> None:
        with self._lock:
            self._state.end_step(step, values)

    def note(self, sentence: str) -> None:
        self._console.print(Text(sentence))

    def close(self) -> None:
        self._leave_stage()
        self._live.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _leave_stage(self) -> None:
        """The last step of the stage stays on the screen as a line."""
        with self._lock:
            line = "  ".join([self._state.steps(), *headline(self._state.values)]) if self._state.values else ""
            self._state.begin_stage("", None)
        if line:  # printed without the lock: rich holds its own and asks for ours when it redraws
            self._console.print(Text(line))

    def _render(self) -> RenderableType:
        with self._lock:
            state = self._state
            lines = Table.grid(padding=(0, 2))
            if state.stage:
                ending = f"{duration(state.left_s)} left" if state.left_s is not None else ""
                numbers = {name: value for name, value in state.values.items() if not name.startswith("pass/")}
                lines.add_row(
                    Text(state.stage, style="bold"),
                    _bar(state.steps_done, state.total_steps),
                    Text("  ".join([_of(state.steps_done, state.total_steps), *headline(numbers), ending])),
                )
            self._spinner.update(text=Text(state.phase))
            lines.add_row(
                self._spinner,
                _bar(state.phase_done, state.phase_total),
                Text(f"{_of(state.phase_done, state.phase_total)}  {duration(state.phase_s)}".strip(), style="dim"),
            )
            return Group(lines, *_pass_line(state.values))


def _bar(done: int, total: int | None) -> RenderableType:
    return ProgressBar(total=total, completed=min(done, total), width=BAR_WIDTH) if total else Text("")


def _of(done: int, total: int | None) -> str:
    if total is not None:
        return f"{done}/{total}"
    return str(done) if done else ""


def _pass_line(values: Mapping[str, float]) -> list[RenderableType]:
    rates = pass_rates(values)
    if not rates:
        return []
    line = Text("pass rate  ", style="dim")
    for domain, rate in rates.items():
        line.append(f"{domain} ", style="default").append(f"{rate:.2f}  ", style="bold")
    return [line]
