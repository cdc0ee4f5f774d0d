"""Shares of sampled programs that pass, counted by hand."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from tests.verifiers.quality.parts import after_answering

from posttrain.core.sandboxing import ResultClass, SandboxLimits
from posttrain.sandbox.scripted import ScriptedSandbox
from posttrain.verifiers.python_code import HiddenTests
from posttrain.verifiers.quality.difficulty import Difficulty, measure_difficulty, spread

TESTS = HiddenTests("f", ([0], [2], [3], [-5]), (0, 4, 9, 26))
SQUARE, DOUBLE, FLOAT = (f"def f(x):\n    return {answer}" for answer in ("x * x", "x + x", "float(x * x)"))


def measured(sandbox: Any, replies: list[str]) -> Difficulty:
    return asyncio.run(measure_difficulty(sandbox, replies, TESTS, SandboxLimits()))


def test_shares_are_counted_over_replies(here: ScriptedSandbox) -> None:
    difficulty = measured(here, [SQUARE, f"```python\n{SQUARE}\n```", DOUBLE, FLOAT])
    assert difficulty == Difficulty(4, 0, (3, 3, 2, 0), 0)
    assert difficulty.test_shares == (0.75, 0.75, 0.5, 0.0)
    assert difficulty.nobody_passes == (3,)
    assert difficulty.nobody_fails == ()


def test_a_test_that_nobody_fails_is_named(here: ScriptedSandbox) -> None:
    assert measured(here, [SQUARE, DOUBLE]).nobody_fails == (0, 1)


def test_a_reply_without_a_program_fails_everything(here: ScriptedSandbox) -> None:
    assert measured(here, [SQUARE, "I do not know."]) == Difficulty(2, 0, (1, 1, 1, 0), 0)


def test_equal_programs_run_once(here: ScriptedSandbox) -> None:
    assert measured(here, [DOUBLE] * 5).num_passing == (5, 5, 0, 0)
    assert len(here.calls) == 1


def test_a_program_that_ended_badly_does_not_solve_the_task(here: ScriptedSandbox) -> None:
    right = "def f(x):\n    return x * x if x >= 0 else 26"
    assert measured(here, [right]).solved_share == 1.0
    badly = replace(here, answer=lambda asked: after_answering(asked, ResultClass.SIGNAL))
    assert measured(badly, [right]) == Difficulty(1, 0, (1, 1, 1, 1), 0)


def test_what_the_sandbox_could_not_run_counts_nowhere(here_except: Any) -> None:
    sandbox = here_except(lambda asked: asked.source == DOUBLE, ResultClass.INFRASTRUCTURE_ERROR)
    assert measured(sandbox, [SQUARE, DOUBLE, DOUBLE]) == Difficulty(1, 2, (1, 1, 1, 0), 0)
    nothing = measured(sandbox, [DOUBLE])
    assert nothing.solved_share is None
    assert nothing.test_shares == nothing.nobody_fails == nothing.nobody_passes == ()


def test_the_spread_over_tasks_counts_what_was_measured() -> None:
    def solved(count: int, of: int = 10) -> Difficulty:
        return Difficulty(of, 0, (count,), count)

    found = spread([solved(0), solved(1), solved(9), solved(10), solved(3, of=10), Difficulty(0, 4, (0,), 0)])
    assert (found.num_tasks, found.num_never_solved, found.num_always_solved) == (5, 1, 1)
    assert found.tenths == (1, 1, 0, 1, 0, 0, 0, 0, 0, 2)
