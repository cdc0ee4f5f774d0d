"""References that do not give the same answers every time are found out, test by test."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from posttrain.core.sandboxing import IsolationTier, ResultClass, RunResult, SandboxLimits
from posttrain.sandbox.local import LocalSandbox
from posttrain.sandbox.scripted import ScriptedSandbox
from posttrain.verifiers.python_code import HiddenTests
from posttrain.verifiers.quality.executions import NotMeasured
from posttrain.verifiers.quality.repetition import Repetition, repeat

LIMITS = SandboxLimits()
STEADY = "def f(x):\n    return x + 1"
TESTS = HiddenTests("f", ([1], [2], [3]), (2, 3, 4))


def repeated(sandbox: Any, source: str, tests: HiddenTests, orders: int = 3, hash_seeds: int = 0) -> Repetition:
    repetition = asyncio.run(repeat(sandbox, source, tests, LIMITS, orders, hash_seeds))
    assert isinstance(repetition, Repetition), repetition
    return repetition


def test_a_steady_reference_passes(here: ScriptedSandbox) -> None:
    assert repeated(here, STEADY, TESTS) == Repetition(3, 0, (), ())
    assert repeated(here, STEADY, TESTS).passes


def test_every_order_asks_every_test_once(here: ScriptedSandbox) -> None:
    repeated(here, STEADY, TESTS, orders=4)
    asked = [[arguments[0] for arguments in call.inputs] for call in here.calls]
    assert asked[:2] == [[1, 2, 3], [3, 2, 1]]
    assert all(sorted(order) == [1, 2, 3] for order in asked)


def test_a_test_that_the_reference_fails_is_failing_not_flaky(here: ScriptedSandbox) -> None:
    wrong = HiddenTests("f", ([1], [2]), (2, 99))
    repetition = repeated(here, STEADY, wrong)
    assert (repetition.failing, repetition.flaky, repetition.passes) == ((1,), (), False)


def test_another_type_fails(here: ScriptedSandbox) -> None:
    assert repeated(here, "def f(x):\n    return x > 0", HiddenTests("f", ([1],), (1,))).failing == (0,)


def test_state_between_calls_shows_in_another_order(here: ScriptedSandbox) -> None:
    source = "seen = []\ndef f(x):\n    seen.append(x)\n    return len(seen) if x > 1 else 1"
    repetition = repeated(here, source, HiddenTests("f", ([1], [2], [3]), (1, 2, 3)))
    assert set(repetition.flaky) <= {1, 2}
    assert repetition.flaky
    assert not repetition.passes


def test_a_random_reference_is_flaky_where_it_is_random_only() -> None:
    source = "import random\ndef f(x):\n    return random.random() if x else 0"
    repetition = repeated(LocalSandbox(), source, HiddenTests("f", ([0], [1]), (0, 0.5)))
    assert repetition.flaky == (1,)


def test_a_reference_that_follows_the_order_of_a_set_is_flaky_under_hash_seeds() -> None:
    source = "def f(xs):\n    return list(set(xs))\n"
    words = [f"word {number}" for number in range(12)]
    first = asyncio.run(LocalSandbox().call(source, "f", [[words], [[]]], limits=LIMITS)).outputs[0].value
    tests = HiddenTests("f", ([words], [[]]), (first, []))
    repetition = repeated(LocalSandbox(), source, tests, orders=1, hash_seeds=2)
    assert repetition.num_runs == 3
    assert repetition.num_hash_seeds == 2
    assert repetition.flaky == (0,)
    assert repetition.note == ""


def test_a_reference_without_its_function_fails_and_is_not_flaky() -> None:
    repetition = repeated(LocalSandbox(), "def g(x):\n    return x + 1", TESTS, hash_seeds=1)
    assert (repetition.failing, repetition.flaky, repetition.num_runs) == ((0, 1, 2), (), 3)
    assert "hash seeds could not be tried" in repetition.note


def test_tuples_and_errors_survive_the_way_back_under_hash_seeds() -> None:
    source = (
        "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\ndef f(x):\n    return (P(x).x, [True])"
    )
    repetition = repeated(LocalSandbox(), source, HiddenTests("f", ([1],), ((1, [True]),)), 1, 1)
    assert repetition.passes
    assert repetition.num_hash_seeds == 1
    raising = repeated(LocalSandbox(), "def f(x):\n    return 1 // x", HiddenTests("f", ([0],), (0,)), 1, 1)
    assert (raising.failing, raising.flaky) == ((0,), ())


def test_a_sandbox_without_hash_seeds_is_said_to_have_none(here: ScriptedSandbox) -> None:
    repetition = repeated(here, STEADY, TESTS, hash_seeds=2)
    assert repetition.passes
    assert repetition.num_hash_seeds == 0
    assert "hash seeds could not be tried" in repetition.note


@dataclass(frozen=True)
class _OddRun(ScriptedSandbox):
    text: str = ""

    async def run(self, *args: Any, **kwargs: Any) -> RunResult:
        return RunResult(ResultClass.OK, IsolationTier.SCRIPTED, stdout=self.text, exit_code=0)


def test_a_report_of_another_shape_is_no_run(here: ScriptedSandbox) -> None:
    for text in ("", "[", "7", "[1, []]", "[1, [['value'], ['value', 3], ['value', 4]]]", "[" * 5000, "x" * 100):
        repetition = repeated(_OddRun(answer=here.answer, text=text), STEADY, TESTS, hash_seeds=1)
        assert repetition.num_runs == 3, text
        assert "hash seeds could not be tried" in repetition.note


def test_a_reference_that_does_not_end_well_does_not_pass(here_except: Any) -> None:
    repetition = repeated(here_except(lambda asked: True, ResultClass.CPU_LIMIT), STEADY, TESTS)
    assert repetition.bad_ends == ("told to",)
    assert repetition.failing == (0, 1, 2)
    assert not repetition.passes


def test_a_failure_of_ours_is_no_flakiness() -> None:
    nothing = asyncio.run(repeat(ScriptedSandbox(num_faults=1000), STEADY, TESTS, LIMITS, 3, 0))
    assert isinstance(nothing, NotMeasured)
    assert "sandbox failed" in nothing.reason
