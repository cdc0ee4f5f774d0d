"""Mutants are killed by tests, never by us."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.verifiers.quality.parts import after_answering

from posttrain.core.errors import IsolationUnavailableError, SandboxError
from posttrain.core.sandboxing import ResultClass, SandboxLimits
from posttrain.core.types import Json
from posttrain.sandbox.local import LocalSandbox
from posttrain.sandbox.scripted import ScriptedSandbox
from posttrain.verifiers.python_code import HiddenTests
from posttrain.verifiers.quality.executions import ATTEMPTS, NotMeasured
from posttrain.verifiers.quality.mutation import Fate, Mutation, measure_mutation

SOURCE = "def f(x):\n    return 'big' if x > 10 else 'small'"
STRONG = HiddenTests("f", ([9], [10], [11], [12], [-20]), ("small", "small", "big", "big", "small"))
WEAK = HiddenTests("f", ([30], [40]), ("big", "big"))


def measured(sandbox: Any, source: str, tests: HiddenTests, probes: list[list[Json]] | None = None) -> Mutation:
    mutation = asyncio.run(measure_mutation(sandbox, source, tests, SandboxLimits(), probes or ()))
    assert isinstance(mutation, Mutation), mutation
    return mutation


def afters(mutation: Mutation, fate: Fate) -> set[str]:
    return {one.mutant.after.removeprefix("return ") for one in mutation.of(fate)}


def test_strong_tests_kill_every_mutant(here: ScriptedSandbox) -> None:
    mutation = measured(here, SOURCE, STRONG)
    assert mutation.count(Fate.KILLED) == len(mutation.judged) == 9
    assert mutation.score == 1.0


def test_weak_tests_score_low_and_their_survivors_say_what_they_miss(here: ScriptedSandbox) -> None:
    mutation = measured(here, SOURCE, WEAK)
    assert mutation.score < 0.5
    assert "'big' if x >= 10 else 'small'" in afters(mutation, Fate.SURVIVED)
    assert "'big'" in afters(mutation, Fate.SURVIVED), "the constant answer passes (attack 16)"


def test_a_mutant_that_raises_or_answers_with_another_type_is_killed(here: ScriptedSandbox) -> None:
    tests = HiddenTests("f", ([[1, 2]], [[3, 4]]), (True, True))
    mutation = measured(here, "def f(xs):\n    return xs[1] > 0", tests)
    killed = afters(mutation, Fate.KILLED)
    assert "xs[2] > 0" in killed  # an IndexError
    assert "None" in killed


@pytest.mark.parametrize("result_class", [ResultClass.CPU_LIMIT, ResultClass.MEMORY_LIMIT, ResultClass.TIME_LIMIT])
def test_a_mutant_that_runs_out_of_a_limit_is_killed(result_class: ResultClass, here_except: Any) -> None:
    sandbox = here_except(lambda asked: ">=" in asked.source, result_class)
    (judged,) = [one for one in measured(sandbox, SOURCE, WEAK).judged if ">=" in one.mutant.source]
    assert judged.fate is Fate.KILLED


def test_a_mutant_that_ends_badly_after_the_right_answers_is_killed(here: ScriptedSandbox) -> None:
    badly = replace(here, answer=lambda asked: after_answering(asked, ResultClass.SIGNAL))
    assert measured(badly, SOURCE, WEAK).score == 1.0


def test_a_wall_clock_limit_that_is_met_once_kills_nothing(here_except: Any) -> None:
    met: list[str] = []

    def first_time(asked: Any) -> bool:
        met.append(asked.source)
        return met.count(asked.source) == 1

    assert measured(here_except(first_time, ResultClass.TIME_LIMIT), SOURCE, WEAK).score == pytest.approx(
        measured(here_except(lambda asked: False, ResultClass.TIME_LIMIT), SOURCE, WEAK).score
    )


def test_an_infrastructure_error_is_neither_a_kill_nor_a_survival(here_except: Any) -> None:
    sandbox = here_except(lambda asked: ">=" in asked.source, ResultClass.INFRASTRUCTURE_ERROR)
    for tests in (STRONG, WEAK):
        mutation = measured(sandbox, SOURCE, tests)
        (judged,) = mutation.of(Fate.NOT_MEASURED)
        assert ">=" in judged.mutant.source
        assert "told to" in judged.reason
        assert len(mutation.judged) == 9
    assert measured(sandbox, SOURCE, STRONG).score == 1.0
    assert len([call for call in sandbox.calls if ">=" in call.source]) == 3 * ATTEMPTS


def test_an_error_of_ours_that_passes_is_forgotten(here: ScriptedSandbox) -> None:
    assert measured(ScriptedSandbox(answer=here.answer, num_faults=ATTEMPTS - 1), SOURCE, WEAK) == measured(
        here, SOURCE, WEAK
    )


def test_a_sandbox_that_raises_is_an_infrastructure_error() -> None:
    class Raising(ScriptedSandbox):
        async def call(self, *args: Any, **kwargs: Any) -> Any:
            raise SandboxError("the pool is closed")

    mutation = measured(Raising(), SOURCE, STRONG)
    assert mutation.count(Fate.NOT_MEASURED) == len(mutation.judged)
    assert "the pool is closed" in mutation.judged[0].reason
    assert mutation.score == 0.0


def test_missing_isolation_stops_the_measurement() -> None:
    class NoIsolation(ScriptedSandbox):
        async def call(self, *args: Any, **kwargs: Any) -> Any:
            raise IsolationUnavailableError("no user namespaces")

    with pytest.raises(IsolationUnavailableError):
        measured(NoIsolation(), SOURCE, STRONG)


def test_a_mutant_that_is_the_same_function_on_every_probe_is_set_apart(here: ScriptedSandbox) -> None:
    source = "def f(xs):\n    return sum([x for x in xs if x > 0])"
    tests = HiddenTests("f", ([[-1, 1, 2]], [[]]), (3, 0))
    without = measured(here, source, tests)
    assert "sum([x for x in xs if x >= 0])" in afters(without, Fate.SURVIVED)
    probes: list[list[Json]] = [[[one, two]] for one in range(-3, 4) for two in range(-3, 4)]
    mutation = measured(here, source, tests, probes)
    assert afters(mutation, Fate.INDISTINCT) == {
        "sum([x for x in xs if x >= 0])",
        "sum([x for x in xs if x > -1])",
    }
    assert mutation.score > without.score
    assert mutation.num_probes == len(probes)


def test_a_mutant_that_a_probe_tells_apart_stays_a_survivor(here: ScriptedSandbox) -> None:
    mutation = measured(here, SOURCE, WEAK, probes=[[10], [3]])
    assert "'big' if x >= 10 else 'small'" in afters(mutation, Fate.SURVIVED)


def test_probes_that_the_reference_does_not_answer_are_left_out(here: ScriptedSandbox) -> None:
    assert measured(here, SOURCE, STRONG, probes=[["text"], [3]]).num_probes == 1
    nothing = asyncio.run(measure_mutation(here, SOURCE, STRONG, SandboxLimits(), [["text"]]))
    assert nothing == NotMeasured("the reference answers none of the 1 probes")


def test_mutants_really_run_in_a_sandbox_and_end_at_its_limits() -> None:
    source = "def f(n):\n    return sum(range(n // 1000))"
    tests = HiddenTests("f", ([10**6], [10**6 + 1]), (499500, 499500))
    mutation = asyncio.run(measure_mutation(LocalSandbox(), source, tests, SandboxLimits(wall_s=20.0, cpu_s=1.0)))
    assert isinstance(mutation, Mutation)
    assert "sum(range(n * 1000))" in afters(mutation, Fate.KILLED)  # it would count for a minute
    assert afters(mutation, Fate.SURVIVED) == {"499500"}  # nothing else is wanted
