"""Programs judged by what they write."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from posttrain.core.errors import SandboxError
from posttrain.core.sandboxing import IsolationTier, ResultClass, RunResult, SandboxLimits
from posttrain.core.types import Verdict, VerdictStatus
from posttrain.sandbox.local import LocalSandbox
from posttrain.verifiers.flags import Flag
from posttrain.verifiers.program_io import ProgramIO, normal_output
from posttrain.verifiers.python_tests import PythonTests

DOUBLE = {
    "cases": [{"stdin": "2\n", "stdout": "4\n"}, {"stdin": "5\n", "stdout": "10\n"}, {"stdin": "0", "stdout": "0"}]
}
CODE = "print(int(input()) * 2)"


@dataclass
class ToldRuns:
    """A sandbox whose runs give what they were told to give, by their input."""

    results: Mapping[str, RunResult | Exception]
    asked: list[tuple[tuple[str, ...], Mapping[str, str] | None, str]] = field(default_factory=list)

    tier = IsolationTier.SCRIPTED

    async def run(
        self, argv: Sequence[str], *, files: Mapping[str, str] | None = None, stdin: str = "", limits: SandboxLimits
    ) -> RunResult:
        self.asked.append((tuple(argv), files, stdin))
        result = self.results[stdin]
        if isinstance(result, Exception):
            raise result
        return result


def ran(stdout: str, result_class: ResultClass = ResultClass.OK, **fields: Any) -> RunResult:
    return RunResult(result_class, IsolationTier.SCRIPTED, stdout=stdout, wall_s=0.25, **fields)


def told(*results: RunResult | Exception) -> Any:
    return ToldRuns(dict(zip(["2\n", "5\n", "0"], results, strict=True)))


def verify(sandbox: Any, reply: str = CODE, gold: Any = DOUBLE, **options: Any) -> Verdict:
    return asyncio.run(ProgramIO(**options).verify(reply, gold, sandbox))


RIGHT = (ran("4\n"), ran("10\n"), ran("0\n"))


def test_all_cases_passed_is_correct_and_expected_outputs_stay_outside() -> None:
    sandbox = told(*RIGHT)
    verdict = verify(sandbox, f"So:\n```python\n{CODE}\n```")
    assert verdict.status is VerdictStatus.CORRECT
    assert verdict.parts == {"tests_passed": 1.0}
    assert verdict.isolation_tier == "scripted"
    assert verdict.wall_s == 0.75
    assert sandbox.asked == [(("python3", "main.py"), {"main.py": CODE}, stdin) for stdin in ("2\n", "5\n", "0")]


def test_one_failed_case_is_incorrect_and_the_reason_hides_what_was_expected() -> None:
    gold = {"cases": [{"stdin": "2\n", "stdout": "8123"}, {"stdin": "5\n", "stdout": "10"}]}
    verdict = verify(told(*RIGHT), gold=gold)
    assert verdict.status is VerdictStatus.INCORRECT
    assert verdict.parts == {"tests_passed": 0.5}
    assert "8123" not in f"{verdict.reason}{verdict.evidence}"


@pytest.mark.parametrize("result_class", sorted(set(ResultClass) - {ResultClass.OK, ResultClass.INFRASTRUCTURE_ERROR}))
def test_a_case_whose_program_ends_badly_fails_whatever_it_wrote(result_class: ResultClass) -> None:
    verdict = verify(told(RIGHT[0], ran("10\n", result_class), RIGHT[2]))
    assert verdict.status is VerdictStatus.INCORRECT
    assert verdict.flags == (str(result_class),)


def test_output_that_was_cut_is_not_compared() -> None:
    assert verify(told(RIGHT[0], ran("10\n", truncated=True), RIGHT[2])).status is VerdictStatus.INCORRECT


@pytest.mark.parametrize("fail_fast", [False, True])
@pytest.mark.parametrize(
    "failure", [SandboxError("closed"), ran("", ResultClass.INFRASTRUCTURE_ERROR, reason="closed")]
)
def test_a_failure_of_the_sandbox_is_no_verdict(failure: Any, fail_fast: bool) -> None:
    verdict = verify(told(RIGHT[0], failure, RIGHT[2]), fail_fast=fail_fast)
    assert verdict.status is VerdictStatus.NO_VERDICT
    assert "closed" in verdict.reason


def test_failing_fast_leaves_out_what_comes_after() -> None:
    sandbox = told(RIGHT[0], ran("11"), RIGHT[2])
    verdict = verify(sandbox, fail_fast=True)
    assert verdict.status is VerdictStatus.INCORRECT
    assert len(sandbox.asked) == 2
    assert verdict.parts == {"tests_passed": pytest.approx(1 / 3)}
    assert verify(told(*RIGHT), fail_fast=True).status is VerdictStatus.CORRECT


@pytest.mark.parametrize(
    ("whitespace", "wrote", "same"),
    [
        ("exact", "a b\n", True),
        ("exact", "a b", False),
        ("trailing", "a b  \n\n", True),
        ("trailing", "a  b\n", False),
        ("trailing", " a b\n", False),
        ("words", " a\nb", True),
        ("words", "ab", False),
    ],
)
def test_what_of_white_space_counts_is_stated(whitespace: Any, wrote: str, same: bool) -> None:
    assert (normal_output(wrote, whitespace) == normal_output("a b\n", whitespace)) is same


def test_a_reply_without_a_program_never_reaches_the_sandbox() -> None:
    sandbox = told(*RIGHT)
    assert verify(sandbox, "```\n```").flags == (Flag.NO_ANSWER,)
    assert verify(sandbox, "```rust\nfn main() {}\n```").flags == (Flag.NO_ANSWER,)
    assert sandbox.asked == []


@pytest.mark.parametrize(
    "gold",
    [
        None,
        {"cases": []},
        {"cases": [{"stdin": "1"}]},
        {"cases": [{"stdin": "1", "stdout": 2}]},
        {"cases": [{"stdin": "1", "stdout": "\n"}, {"stdout": ""}]},
        {"cases": [{"stdout": "1"}], "whitespace": "any"},
    ],
)
def test_cases_that_an_empty_program_passes_are_an_error(gold: Any) -> None:
    with pytest.raises(ValueError, match="cases"):
        verify(told(*RIGHT), gold=gold)


def test_programs_really_run_in_python_and_in_another_language() -> None:
    async def both() -> list[Verdict]:
        sandbox = LocalSandbox()
        shell = ProgramIO("main.sh", ("sh", "main.sh"), ("sh", ""))
        try:
            return [
                await ProgramIO().verify(CODE, DOUBLE, sandbox),
                await ProgramIO().verify("print(4)", DOUBLE, sandbox),
                await shell.verify("read x || true\necho $((x * 2))", DOUBLE, sandbox),
                await PythonTests().verify("def f(x): return x", {"function": "f", "tests": [[[1], 1]]}, sandbox),
                await PythonTests().verify("def f(x): return 1", {"function": "f", "tests": [[[2], 2]]}, sandbox),
            ]
        finally:
            await sandbox.close()

    assert [verdict.score for verdict in asyncio.run(both())] == [1.0, 0.0, 1.0, 1.0, 0.0]


@pytest.mark.parametrize("gold", [None, [], {"function": "f", "tests": []}])
def test_a_function_without_tests_is_an_error(gold: Any) -> None:
    with pytest.raises(ValueError, match="test"):
        asyncio.run(PythonTests().verify("def f(): ...", gold, told(*RIGHT)))
