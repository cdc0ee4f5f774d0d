"""What ran and what did not, of programs whose paths are known."""

from __future__ import annotations

import asyncio
import textwrap
from typing import Any

import pytest

from posttrain.core.sandboxing import SandboxLimits
from posttrain.core.types import Json
from posttrain.sandbox.scripted import ScriptedSandbox
from posttrain.verifiers.python_code import HiddenTests
from posttrain.verifiers.quality.coverage import Coverage, measure_coverage
from posttrain.verifiers.quality.executions import NotMeasured

SIGN = """\
def f(x):
    if x > 0:
        return 1
    elif x < 0:
        return -1
    return 0
"""


def covered(sandbox: ScriptedSandbox, source: str, *inputs: list[Json]) -> Coverage:
    """Under tests that ask `inputs` and expect what `source` gives."""
    source = textwrap.dedent(source)
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    tests = HiddenTests("f", inputs, tuple(namespace["f"](*arguments) for arguments in inputs))
    coverage = asyncio.run(measure_coverage(sandbox, source, tests, SandboxLimits()))
    assert isinstance(coverage, Coverage), coverage
    return coverage


def missed(coverage: Coverage) -> list[tuple[int, str]]:
    return [(arm.line, arm.outcome) for arm in coverage.missed_arms]


def test_everything_that_ran_is_covered(here: ScriptedSandbox) -> None:
    coverage = covered(here, SIGN, [5], [-5], [0])
    assert (coverage.num_lines, coverage.num_arms) == (6, 4)
    assert coverage.missed_lines == ()
    assert coverage.missed_arms == ()
    assert (coverage.line_share, coverage.branch_share) == (1.0, 1.0)


def test_a_line_and_an_arm_that_never_ran_are_named(here: ScriptedSandbox) -> None:
    coverage = covered(here, SIGN, [5], [0])
    assert coverage.missed_lines == (5,)
    assert missed(coverage) == [(4, "`x < 0` was true")]
    assert (coverage.line_share, coverage.branch_share) == (5 / 6, 3 / 4)


@pytest.mark.parametrize(
    ("source", "inputs", "outcome"),
    [
        ("def f(x):\n    return 1 if x else 2", [[1]], "`x` was false"),
        ("def f(x):\n    return [y for y in x if y > 2]", [[[3]]], "`y > 2` was false"),
        ("def f(x):\n    return [y for y in x]", [[[]]], "`for y in x` had an element"),
        ("def f(x):\n    return x > 1 and x < 5", [[0]], "`x > 1` was true"),
        ("def f(x):\n    return x or 5", [[0]], "`x` was true"),
        ("def f(x):\n    while x > 3:\n        x -= 1\n    return x", [[2]], "`x > 3` was true"),
        ("def f(x):\n    for y in x:\n        return y", [[[1]]], "`for y in x` ran out of elements"),
        ("def f(x):\n    match x:\n        case 1:\n            return 2", [[1]], "no case fitted `x`"),
        (
            "def f(x):\n    match x:\n        case y if y > 1:\n            return 2\n    return 3",
            [[2]],
            "`y > 1` was false",
        ),
    ],
)
def test_every_kind_of_decision_has_its_arms(
    source: str, inputs: list[list[Json]], outcome: str, here: ScriptedSandbox
) -> None:
    assert outcome in [arm.outcome for arm in covered(here, source, *inputs).missed_arms]


def test_what_decides_nothing_has_no_arms(here: ScriptedSandbox) -> None:
    source = "def f(x):\n    while True:\n        return x"
    assert covered(here, source, [1]).num_arms == 0
    assert covered(here, "def f(x):\n    match x:\n        case _:\n            return 2", [1]).num_arms == 0


def test_docstrings_and_imports_from_the_future_stay_first_and_are_no_lines(here: ScriptedSandbox) -> None:
    source = '''\
        """Of a module."""
        from __future__ import annotations
        import math

        def f(x: int) -> float:
            """Of a function."""
            return math.sqrt(x)
        '''
    coverage = covered(here, source, [4])
    assert coverage.num_lines == 3
    assert coverage.missed_lines == ()


def test_the_copy_answers_what_the_program_answers(here: ScriptedSandbox) -> None:
    source = """\
        def f(xs):
            global last
            last = None
            seen, total = set(), 0
            for i, x in enumerate(xs):
                if x in seen and not total > 100:
                    continue
                elif x < 0:
                    break
                seen.add(x)
                total += x if i % 2 else -x
            else:
                last = [y for y in sorted(seen) if y > 1 or y == 0]
            try:
                total //= len(xs)
            except ZeroDivisionError:
                return "nothing"
            while (step := total - 3) > 0:
                total = step
            return [total, last, {k: v for k, v in zip("ab", xs)}]
        """
    coverage = covered(here, source, [[]], [[1, 2, 2, 0]], [[4, -1]], [[30, 1, 9]], [[0, 90, 0, 90]])
    assert coverage.missed_lines == ()
    assert [outcome for _, outcome in missed(coverage)] == ["`step > 0` was true"] or not missed(coverage)


def test_a_copy_that_answers_otherwise_is_not_measured(here: ScriptedSandbox) -> None:
    tests = HiddenTests("f", ([1],), (8,))
    coverage = asyncio.run(measure_coverage(here, "def f(x):\n    return x", tests, SandboxLimits()))
    assert isinstance(coverage, NotMeasured)
    assert "test 0" in coverage.reason


def test_a_sandbox_that_fails_measures_nothing() -> None:
    tests = HiddenTests("f", ([1],), (1,))
    broken = ScriptedSandbox(num_faults=100)
    coverage = asyncio.run(measure_coverage(broken, "def f(x):\n    return x", tests, SandboxLimits()))
    assert isinstance(coverage, NotMeasured)
    assert "sandbox failed" in coverage.reason
