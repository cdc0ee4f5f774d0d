"""The Python of a session that stays from cell to cell, as the host sees it (inside: `cells.py`, `interpreter.py`).

It is alive, as far as we know, after a cell that did not end with it; the server knows for certain, and a cell that
found none says that it had a fresh one.
"""

from __future__ import annotations

from dataclasses import replace

from posttrain.core.sandboxing import CellResult, IsolationTier, ResultClass, RunResult, SandboxLimits
from posttrain.sandbox.inside.cells import DONE, ENDED, FRESH
from posttrain.sandbox.inside.server import CELL, CELL_AND_KEEP
from posttrain.sandbox.order import Order
from posttrain.sandbox.outcome import judge
from posttrain.sandbox.slot import Slot
from posttrain.sandbox.turn import execute_on


class Interpreter:
    """`limits` are the session's. Between cells the interpreter stands still, with its threads, and what a cell has
    started ends with the cell; with `background` all go on, and can signal one another."""

    def __init__(self, slot: Slot, tier: IsolationTier, limits: SandboxLimits, *, background: bool) -> None:
        self._slot, self._tier, self._limits = slot, tier, limits
        self._word = CELL_AND_KEEP if background else CELL

    @property
    def alive(self) -> bool:
        return self._slot.beside is not None

    def ended(self) -> None:
        """By the session."""
        self._slot.beside = None

    async def run(self, code: str, limits: SandboxLimits) -> CellResult:
        own = replace(self._limits, wall_s=limits.wall_s, cpu_s=limits.cpu_s, output_kib=limits.output_kib)
        self._slot.beside = None  # it is no other than who runs
        account = _Account()
        ended = await execute_on(self._slot, Order(own, verb=("cell", code)), account, self._word)
        run = judge(ended, self._tier, own)
        if not ended.stop and not account.ended and run.result_class is not ResultClass.INFRASTRUCTURE_ERROR:
            self._slot.beside = self._limits
        return CellResult(_of_cell(run, done=account.done), fresh=account.fresh, ended=not self.alive)


class _Account:
    """What the server says of a cell: a `Talk` that only listens."""

    violation = ""

    def __init__(self) -> None:
        self._said = b""

    @property
    def fresh(self) -> bool:
        return self._said.startswith(FRESH)

    @property
    def done(self) -> bool:
        return DONE in self._said

    @property
    def ended(self) -> bool:
        return self._said.endswith(ENDED)

    def next_message(self) -> bytes | None:
        return None

    def feed(self, data: bytes) -> bool:
        self._said += data
        return False


def _of_cell(run: RunResult, *, done: bool) -> RunResult:
    """A cell that is done has no exit code, and one that ended the interpreter is not OK for its exit code of 0."""
    if done:
        raised = run.result_class is ResultClass.PROGRAM_ERROR
        return replace(run, exit_code=None, reason="the cell raised an exception" if raised else run.reason)
    if run.result_class in (ResultClass.OK, ResultClass.PROGRAM_ERROR):
        reason = f"the cell ended the interpreter, which exited with {run.exit_code}"
        return replace(run, result_class=ResultClass.PROGRAM_ERROR, reason=reason)
    return run
