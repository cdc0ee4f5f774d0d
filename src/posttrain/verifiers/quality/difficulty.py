"""How hard is a task? The share of sampled programs that pass each of its tests, and all of them.

A test that nobody fails tells nobody apart; one that nobody passes is too hard, or wrong. A reply without a program
fails everything; one that the sandbox could not run counts nowhere.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from posttrain.core.protocols import Sandbox
from posttrain.core.sandboxing import SandboxLimits
from posttrain.verifiers.final_answer import Refused
from posttrain.verifiers.program_text import read_program
from posttrain.verifiers.python_code import HiddenTests, passed_tests
from posttrain.verifiers.quality.executions import NotMeasured, call, passes_all


@dataclass(frozen=True)
class Difficulty:
    """Of one task, over the replies that were measured."""

    num_measured: int
    num_not_measured: int
    num_passing: tuple[int, ...]
    """For each test, how many replies pass it."""
    num_solving: int
    """How many replies pass the whole task."""

    @property
    def test_shares(self) -> tuple[float, ...]:
        return tuple(passing / self.num_measured for passing in self.num_passing) if self.num_measured else ()

    @property
    def solved_share(self) -> float | None:
        return self.num_solving / self.num_measured if self.num_measured else None

    @property
    def nobody_fails(self) -> tuple[int, ...]:
        """Positions of the tests that carry no information."""
        return self._tests_passed_by(self.num_measured)

    @property
    def nobody_passes(self) -> tuple[int, ...]:
        return self._tests_passed_by(0)

    def _tests_passed_by(self, count: int) -> tuple[int, ...]:
        tests = enumerate(self.num_passing) if self.num_measured else ()
        return tuple(place for place, passing in tests if passing == count)


@dataclass(frozen=True)
class DifficultySpread:
    """Over several tasks; those of which nothing was measured are not in it."""

    num_tasks: int
    num_never_solved: int
    num_always_solved: int
    tenths: tuple[int, ...]
    """Tasks by the share of replies that solve them: [0, 0.1), [0.1, 0.2) … [0.9, 1]."""


async def measure_difficulty(
    sandbox: Sandbox, replies: Sequence[str], tests: HiddenTests, limits: SandboxLimits
) -> Difficulty:
    """Equal programs run once and count as often as they were sampled."""
    programs = Counter(_program(reply, tests.function) for reply in replies)
    refused = programs.pop(None, 0)
    results = await asyncio.gather(
        *(call(sandbox, program, tests.function, tests.inputs, limits) for program in programs if program is not None)
    )
    num_measured, num_passing, num_solving = refused, [0] * len(tests.inputs), 0
    for result, count in zip(results, programs.values(), strict=True):
        if isinstance(result, NotMeasured):
            continue
        num_measured += count
        num_solving += count * passes_all(tests, result)
        num_passing = [have + count * ok for have, ok in zip(num_passing, passed_tests(tests, result), strict=True)]
    return Difficulty(num_measured, len(replies) - num_measured, tuple(num_passing), num_solving)


def spread(difficulties: Sequence[Difficulty]) -> DifficultySpread:
    measured = [one for one in difficulties if one.num_measured]
    tenths = Counter(min(9, 10 * one.num_solving // one.num_measured) for one in measured)
    return DifficultySpread(
        num_tasks=len(measured),
        num_never_solved=sum(one.num_solving == 0 for one in measured),
        num_always_solved=sum(one.num_solving == one.num_measured for one in measured),
        tenths=tuple(tenths[tenth] for tenth in range(10)),
    )


def _program(reply: str, function: str) -> str | None:
    program = read_program(reply, function)
    return None if isinstance(program, Refused) else program
