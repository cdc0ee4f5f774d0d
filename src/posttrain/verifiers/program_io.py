"""Programs that read standard input and write standard output, one execution a case.

`gold` is `{"cases": [{"stdin": …, "stdout": …}, …], "whitespace": …}`. Expected outputs stay outside the sandbox; all
cases must pass, and a case whose program ends badly fails whatever it printed. Any language that the sandbox has will
do: its command is an option, Python's the default.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from posttrain.core.errors import SandboxError
from posttrain.core.protocols import Sandbox
from posttrain.core.sandboxing import ResultClass, RunResult, SandboxLimits
from posttrain.core.types import Json, Verdict
from posttrain.verifiers.fenced import read_fenced
from posttrain.verifiers.final_answer import Refused
from posttrain.verifiers.gold import gold_reader, gold_record
from posttrain.verifiers.program_text import PYTHON_FENCES

MAX_ANSWER_CHARACTERS = 500

Whitespace = Literal["exact", "trailing", "words"]


@gold_record
class Case:
    """One input and what must be written for it."""

    stdout: str
    stdin: str = ""


@gold_record
class ProgramIOGold:
    """`ProgramIO`'s gold."""

    cases: Annotated[tuple[Case, ...], Field(min_length=1)]
    whitespace: Whitespace = "trailing"
    """What of it counts: all; all but that at the ends of lines and of the output; only that words are apart."""

    def __post_init__(self) -> None:
        if not any(normal_output(case.stdout, self.whitespace) for case in self.cases):
            raise ValueError("no case expects any output, which an empty program would give")


_read = gold_reader(ProgramIOGold, "a program's cases")


@dataclass(frozen=True)
class ProgramIO:
    """The program writes what every case expects; the share of cases passed is a part."""

    file: str = "main.py"
    """What the program is called in its folder."""
    command: tuple[str, ...] = ("python3", "main.py")
    """What runs it there."""
    fences: tuple[str, ...] = PYTHON_FENCES
    """Names of its language that may stand behind the opening fence of a block."""
    fail_fast: bool = False
    """Whether cases run one after the other up to the first that fails, instead of all at once."""
    limits: SandboxLimits = field(default_factory=SandboxLimits)
    """Of one case."""

    version: ClassVar[str] = "1"

    async def verify(self, reply: str, gold: Json, sandbox: Sandbox) -> Verdict:
        wanted: ProgramIOGold = _read(gold)
        program = read_fenced(reply, self.fences, "program")
        if isinstance(program, Refused):
            return program.verdict()
        shown: dict[str, Any] = {"answer": program[:MAX_ANSWER_CHARACTERS], "isolation_tier": str(sandbox.tier)}
        try:
            results = await self._results(program, wanted, sandbox)
        except SandboxError as error:
            return Verdict.none(f"the sandbox failed: {error}", **shown)
        return judge(wanted, results, shown)

    async def _results(self, program: str, wanted: ProgramIOGold, sandbox: Sandbox) -> list[RunResult]:
        """Of every case, or of those up to the first that fails."""

        def run(case: Case) -> Coroutine[Any, Any, RunResult]:
            return sandbox.run(self.command, files={self.file: program}, stdin=case.stdin, limits=self.limits)

        results: list[RunResult] = []
        if not self.fail_fast:
            # All are waited for: none is left behind where one fails.
            outcomes = await asyncio.gather(*map(run, wanted.cases), return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome
                results.append(outcome)
            return results
        for case in wanted.cases:
            results.append(await run(case))
            if not is_passed(results[-1], case, wanted.whitespace):
                break
        return results


def judge(wanted: ProgramIOGold, results: Sequence[RunResult], shown: dict[str, Any]) -> Verdict:
    """A verdict from executions of the first cases; a case that was not run is not passed."""
    cases = len(wanted.cases)
    for result in results:
        if result.result_class is ResultClass.INFRASTRUCTURE_ERROR:
            return Verdict.none(f"the sandbox failed: {result.reason or 'no reason given'}", **shown)
    passed = [is_passed(result, case, wanted.whitespace) for result, case in zip(results, wanted.cases, strict=False)]
    classes = [result.result_class for result in results]
    shown = shown | {
        "parts": {"tests_passed": sum(passed) / cases},
        "evidence": {"result_classes": [str(each) for each in classes], "passed": sum(passed), "tests": cases},
        "flags": tuple(dict.fromkeys(str(each) for each in classes if each is not ResultClass.OK)),
        "wall_s": sum(result.wall_s for result in results),
    }
    if len(results) == cases and all(passed):
        return Verdict.correct(**shown)
    failed = next((result for result in results if result.result_class is not ResultClass.OK), None)
    how = f"; the program failed: {failed.reason or failed.result_class}" if failed else ""
    return Verdict.incorrect(f"{sum(passed)} of {cases} hidden cases passed{how}", **shown)


def is_passed(result: RunResult, case: Case, whitespace: Whitespace) -> bool:
    if result.result_class is not ResultClass.OK or result.truncated:
        return False
    return normal_output(result.stdout, whitespace) == normal_output(case.stdout, whitespace)


def normal_output(text: str, whitespace: Whitespace) -> str:
    """One text for all outputs that count as the same."""
    if whitespace == "words":
        return " ".join(text.split())
    if whitespace == "trailing":
        return "\n".join(line.rstrip() for line in text.split("\n")).rstrip()
    return text
