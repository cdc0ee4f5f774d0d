"""Does a reference give the same answers every time? The same tests again, in other orders and under other hash seeds.

Another order shows state that stays between calls, another hash seed shows answers that follow the order of a set;
every repetition is a new process. A test that fails one time in k goes unseen with probability (1 - 1/k)^n in n runs.
A verb `run` with an `env` program is needed for hash seeds; where a sandbox has none, the report says so.
"""

from __future__ import annotations

import ast
import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass

from posttrain.core.errors import SandboxError
from posttrain.core.protocols import Sandbox
from posttrain.core.sandboxing import CallOutput, OutputStatus, ResultClass, RunResult, SandboxLimits
from posttrain.core.seeding import stable_random
from posttrain.verifiers.python_code import HiddenTests, is_right, same_plain_data
from posttrain.verifiers.quality.executions import ATTEMPTS, NotMeasured, call

_DRIVER = """
import sys
module = sys.modules["candidate"] = type(sys)("candidate")
exec(compile({source!r}, "candidate.py", "exec"), module.__dict__)
function = module.{function}
answers = []
for arguments in {inputs!r}:
    try:
        answers.append(["value", function(*arguments)])
    except Exception as error:
        answers.append(["raised", type(error).__name__])
print()
print(repr([hash("a text"), answers]))
"""


@dataclass(frozen=True)
class Repetition:
    """Tests are named by their position."""

    num_runs: int
    num_hash_seeds: int
    """Different hash seeds among the runs."""
    failing: tuple[int, ...]
    """Tests that the reference fails in at least one run."""
    flaky: tuple[int, ...]
    """Tests that it does not answer in the same way in every run."""
    bad_ends: tuple[str, ...] = ()
    """How runs ended that did not end well, each once."""
    note: str = ""
    """Why fewer hash seeds were tried than asked for."""

    @property
    def passes(self) -> bool:
        """Whether the reference passed every test in every run."""
        return not self.failing and not self.flaky and not self.bad_ends


@dataclass(frozen=True)
class _Run:
    outputs: tuple[CallOutput, ...]
    """In the order of the tests."""
    bad_end: str = ""
    hash_of_text: int | None = None


async def repeat(
    sandbox: Sandbox, source: str, tests: HiddenTests, limits: SandboxLimits, num_orders: int, num_hash_seeds: int
) -> Repetition | NotMeasured:
    """Runs `source` once for each order (the given one, its reverse, then shuffled ones) and each hash seed."""
    assert num_orders >= 1, "a repetition without a run says nothing"
    count = len(tests.inputs)
    ordered = await asyncio.gather(
        *(_in_order(sandbox, source, tests, limits, _order(count, turn)) for turn in range(num_orders))
    )
    seeded = await asyncio.gather(
        *(_under_hash_seed(sandbox, source, tests, limits, seed) for seed in range(1, num_hash_seeds + 1))
    )
    for run in ordered:
        if isinstance(run, NotMeasured):
            return run
    runs = [run for run in (*ordered, *seeded) if isinstance(run, _Run)]
    notes = [run.reason for run in seeded if isinstance(run, NotMeasured)]
    return _summary(tests, runs, "; ".join(dict.fromkeys(notes)))


def _order(count: int, turn: int) -> list[int]:
    if turn <= 1:
        return list(range(count)) if turn == 0 else list(reversed(range(count)))
    state: random.Random = stable_random("order of tests", count, turn)
    return state.sample(range(count), count)


async def _in_order(
    sandbox: Sandbox, source: str, tests: HiddenTests, limits: SandboxLimits, order: Sequence[int]
) -> _Run | NotMeasured:
    result = await call(sandbox, source, tests.function, [tests.inputs[place] for place in order], limits)
    if isinstance(result, NotMeasured):
        return result
    by_test = dict(zip(order, result.outputs, strict=True))
    return _Run(tuple(by_test[place] for place in range(len(order))), _bad_end(result.run))


async def _under_hash_seed(
    sandbox: Sandbox, source: str, tests: HiddenTests, limits: SandboxLimits, seed: int
) -> _Run | NotMeasured:
    driver = _DRIVER.format(source=source, inputs=list(tests.inputs), function=tests.function)
    argv = ["env", f"PYTHONHASHSEED={seed}", "python3", "repeat.py"]
    reason = ""
    for _ in range(ATTEMPTS):
        try:
            run = await sandbox.run(argv, files={"repeat.py": driver}, limits=limits)
        except SandboxError as error:
            reason = str(error)
            continue
        if run.result_class not in (ResultClass.INFRASTRUCTURE_ERROR, ResultClass.TIME_LIMIT):
            return _read(run, len(tests.inputs))
        reason = run.reason
    return NotMeasured(f"hash seeds could not be tried: {reason}")


def _read(run: RunResult, count: int) -> _Run | NotMeasured:
    """The driver's last line; what it printed is our reference's own and forges nothing."""
    try:
        match ast.literal_eval(run.stdout.rstrip().rpartition("\n")[2]):
            case [int(hash_of_text), list(answers)] if len(answers) == count:
                outputs = tuple(CallOutput(OutputStatus(status), value) for status, value in answers)
                return _Run(outputs, _bad_end(run), hash_of_text)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        pass
    return NotMeasured(f"hash seeds could not be tried: {run.reason or 'the reference did not report'}")


def _bad_end(run: RunResult) -> str:
    return "" if run.result_class is ResultClass.OK else run.reason or str(run.result_class)


def _summary(tests: HiddenTests, runs: Sequence[_Run], note: str) -> Repetition:
    places = range(len(tests.inputs))
    answers = [[run.outputs[place] for run in runs] for place in places]
    failing = [place for place in places if not all(is_right(one, tests.expected[place]) for one in answers[place])]
    flaky = [place for place in places if not all(_same(one, answers[place][0]) for one in answers[place])]
    seeds = {run.hash_of_text for run in runs if run.hash_of_text is not None}
    bad_ends = tuple(dict.fromkeys(run.bad_end for run in runs if run.bad_end))
    return Repetition(len(runs), len(seeds), tuple(failing), tuple(flaky), bad_ends, note)


def _same(one: CallOutput, other: CallOutput) -> bool:
    """Whether two answers are alike; an error's words may name an address and are not compared."""
    return one.status is other.status and (
        one.status is not OutputStatus.VALUE or same_plain_data(one.value, other.value)
    )
