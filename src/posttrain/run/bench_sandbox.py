"""`posttrain bench sandbox`: what an execution costs in slots that fork, next to what it costs without isolation.

All variants take turns in every round, so that a machine that is slower for a while is slower for all of them; ratios
are taken within a round, and their median is told. Rates per core are of this process and all its children on one
core. Every answer is checked, and a wrong one ends the benchmark. `bench_sandbox_programs.py` has what is run,
`bench_sandbox_figures.py` the arithmetic.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from posttrain.core.errors import ConfigError, SandboxError
from posttrain.core.sandboxing import CallResult, ResultClass, SandboxLimits
from posttrain.run.bench_sandbox_figures import Measured, figures
from posttrain.run.bench_sandbox_programs import (
    ASSERTS,
    BOMBS,
    LOOPS,
    MAKE_FILES,
    NUMPY,
    TRIVIAL,
    Program,
    base_interpreter,
    empty_environment,
    run_bare,
    run_numpy_cold,
    run_with_rlimits,
)
from posttrain.sandbox.conversation import Conversation
from posttrain.sandbox.local import LocalSandbox
from posttrain.sandbox.order import call_order
from posttrain.sandbox.probe import slot_isolation
from posttrain.sandbox.profile import PROFILES
from posttrain.sandbox.session import Session
from posttrain.sandbox.slot import Slot
from posttrain.sandbox.turn import execute_on

LIMITS = SandboxLimits()
KILL_LIMITS = SandboxLimits(wall_s=0.05, cpu_s=1.0, memory_mib=64, processes=8, output_kib=16, disk_mib=1)
LOAD = 0.5
"""Of what the sandbox can do, while latency is measured."""
NUM_FILES = (50, 2000)
MIN_ROUNDS = 5

Work = Callable[[], Awaitable[None]]


@dataclass(frozen=True)
class Plan:
    """How much is measured in one round."""

    variant_s: float = 1.0
    num_latencies: int = 300
    num_resets: int = 15
    """For each number of files."""
    num_kills: int = 15
    num_bombs: int = 15


@dataclass(frozen=True)
class Variant:
    name: str
    cores: Set[int]
    work: Work
    callers: int = 1


def bench_sandbox(rounds: int, note: Callable[[str], None], plan: Plan | None = None) -> dict[str, Any]:
    """What `bench sandbox` prints as JSON; `note` gets a sentence for each round.

    Raises `IsolationUnavailableError`, `ConfigError` for too few rounds, and `SandboxError` for a wrong answer.
    """
    if rounds < (MIN_ROUNDS if plan is None else 1):
        raise ConfigError(f"--rounds is {rounds}; medians need at least {MIN_ROUNDS}")
    isolation = slot_isolation()
    cores = sorted(os.sched_getaffinity(0))[:2]
    measured = asyncio.run(_measure(cores, rounds, plan or Plan(), note))
    return {
        "tier": isolation.tier,
        "kernel": isolation.kernel,
        "landlock_abi": isolation.landlock_abi,
        "cgroup": isolation.cgroup,
        "rounds": rounds,
        "cores": len(cores),
        **figures(measured),
    }


async def _measure(cores: list[int], rounds: int, plan: Plan, note: Callable[[str], None]) -> Measured:
    async with contextlib.AsyncExitStack() as stack:
        bench = await _Bench.start(cores, plan, stack)
        measured = Measured()
        for number in range(rounds):
            await bench.round(number, measured)
            note(f"round {number + 1} of {rounds}")
        return measured


@dataclass(frozen=True)
class _Tree:
    """A session's work tree, as it is when an agent begins."""

    session: Session
    snapshot: str

    @classmethod
    async def open(cls, sandbox: LocalSandbox, num_files: int) -> _Tree:
        tree = {f"folder{number % 40}/file{number}.py": f"x = {number}\n" * 50 for number in range(num_files)}
        session = await sandbox.session(tree)
        return cls(session, await session.snapshot())

    async def reset_and_snapshot_s(self) -> tuple[float, float]:
        """Each with a change behind it."""
        await self._change()
        started = time.perf_counter()
        await self.session.restore(self.snapshot)
        reset_s = time.perf_counter() - started
        await self._change()
        started = time.perf_counter()
        await self.session.snapshot()
        snapshot_s = time.perf_counter() - started
        await self.session.restore(self.snapshot)
        return reset_s, snapshot_s

    async def _change(self) -> None:
        await self.session.write("folder0/file0.py", b"x = 1")
        await self.session.write("new.py", b"x = 2")


@dataclass(frozen=True)
class _Bench:
    """Slots inherit the cores that they were started on and keep them, so there is a sandbox for each set of cores."""

    plan: Plan
    cores: Set[int]
    variants: tuple[Variant, ...]
    all_cores: LocalSandbox
    slot: Slot
    """For the sizes of boxes, since a sandbox does not tell which slot it used."""
    trees: dict[int, _Tree]
    """By the number of files."""

    @classmethod
    async def start(cls, cores: list[int], plan: Plan, stack: contextlib.AsyncExitStack) -> _Bench:
        one, both = frozenset(cores[:1]), frozenset(cores)
        python = empty_environment(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="posttrain-bench-"))))
        with on_cores(one):
            single = LocalSandbox(concurrency=1)
            stack.push_async_callback(single.close)
            await call(single, TRIVIAL)
            await call(single, NUMPY)
        with on_cores(both):
            # One more than there are cores, so that none has nothing to do while this process takes its part.
            num_slots = len(cores) + 1
            double = LocalSandbox(concurrency=num_slots)
            stack.push_async_callback(double.close)
            await asyncio.gather(*(call(double, TRIVIAL) for _ in range(num_slots)))
            slot = Slot(slot_isolation().host, PROFILES["python"])
            stack.callback(slot.close)
            trees = {num_files: await _Tree.open(double, num_files) for num_files in NUM_FILES}
            for tree in trees.values():
                stack.push_async_callback(tree.session.close)
        variants = [
            Variant("bare", one, _blocking(partial(run_bare, python))),
            Variant("bare_as_installed", one, _blocking(partial(run_bare, base_interpreter()))),
            Variant("rlimits", one, _blocking(partial(run_with_rlimits, python))),
            Variant("numpy_cold", one, _blocking(run_numpy_cold)),
            Variant("trivial", one, lambda: call(single, TRIVIAL)),
            Variant("asserts", one, lambda: call(single, ASSERTS)),
            Variant("numpy", one, lambda: call(single, NUMPY)),
        ]
        if len(cores) == 2:
            variants.append(Variant("bare_2_cores", both, lambda: asyncio.to_thread(run_bare, python), callers=2))
            variants.append(Variant("trivial_2_cores", both, lambda: call(double, TRIVIAL), num_slots))
        return cls(plan, both, tuple(variants), double, slot, trees)

    async def round(self, number: int, measured: Measured) -> None:
        """The other way round every second time, so that nobody always follows the same."""
        for variant in self.variants if number % 2 == 0 else reversed(self.variants):
            with on_cores(variant.cores):
                rate = await rate_per_s(variant.work, variant.callers, self.plan.variant_s)
            measured.rates.setdefault(variant.name, []).append(rate)
        with on_cores(self.cores):
            capacity = measured.rates.get("trivial_2_cores", measured.rates["trivial"])[-1]
            latencies = await added_latencies_s(self.all_cores, capacity * LOAD, self.plan.num_latencies, seed=number)
            measured.added_latency_s += latencies
            for num_files, tree in self.trees.items():
                for _ in range(self.plan.num_resets):
                    reset_s, snapshot_s = await tree.reset_and_snapshot_s()
                    measured.reset_s.setdefault(num_files, []).append(reset_s)
                    measured.snapshot_s.setdefault(num_files, []).append(snapshot_s)
                    measured.box_s.setdefault(num_files, []).append(await self._box_s(num_files))
            measured.overshoot_s += await overshoots_s(self.all_cores, LOOPS, self.plan.num_kills)
            measured.overshoot_bombs_s += await overshoots_s(self.all_cores, BOMBS, self.plan.num_bombs)

    async def _box_s(self, num_files: int) -> float:
        """The slot tells with its next execution how long it took to empty the box of the last one."""
        for program in (replace(MAKE_FILES, inputs=[[num_files]], expected=[num_files]), TRIVIAL):
            conversation = Conversation(program.inputs)
            order = call_order(program.source, program.function, program.inputs, LIMITS)
            await execute_on(self.slot, order, conversation)
            if [output.value for output in conversation.outputs()] != program.expected:
                raise SandboxError(f"{program.name} did not give what it should: {conversation.outputs()}")
        return self.slot.reset_s


async def call(sandbox: LocalSandbox, program: Program) -> None:
    """Raises `SandboxError` where it does not give the expected values, which never go in."""
    result = await sandbox.call(
        program.source, program.function, program.inputs, limits=LIMITS, profile=program.profile
    )
    check(program, result)


def check(program: Program, result: CallResult) -> None:
    """Raises `SandboxError`."""
    values = [output.value for output in result.outputs]
    if result.run.result_class is not ResultClass.OK or values != program.expected:
        raise SandboxError(f"{program.name} gave {values} and {result.run.result_class}: {result.run.reason}")


async def rate_per_s(work: Work, callers: int, duration_s: float) -> float:
    """Each caller does at least one."""
    num_done = 0
    started = time.perf_counter()

    async def caller() -> None:
        nonlocal num_done
        while True:
            await work()
            num_done += 1
            if time.perf_counter() - started >= duration_s:
                return

    await asyncio.gather(*(caller() for _ in range(callers)))
    return num_done / (time.perf_counter() - started)


async def added_latencies_s(sandbox: LocalSandbox, rate: float, count: int, seed: int) -> list[float]:
    """Of calls that come by chance, `rate` a second: time of the await without the program's own."""
    gaps = random.Random(seed)

    async def one() -> float:
        started = time.perf_counter()
        result = await sandbox.call(TRIVIAL.source, TRIVIAL.function, TRIVIAL.inputs, limits=LIMITS)
        added_s = time.perf_counter() - started - result.run.wall_s
        check(TRIVIAL, result)
        return added_s

    due = time.perf_counter()
    tasks = []
    for _ in range(count):
        due += gaps.expovariate(rate)
        await asyncio.sleep(due - time.perf_counter())
        tasks.append(asyncio.create_task(one()))
    return list(await asyncio.gather(*tasks))


async def overshoots_s(sandbox: LocalSandbox, sources: Mapping[str, str], count: int) -> list[float]:
    """How long after its wall limit the await of a program came back, one at a time; the start counts too."""
    overshoots = []
    names = sorted(sources)
    for number in range(count):
        started = time.perf_counter()
        result = await sandbox.call(sources[names[number % len(names)]], "f", [[1]], limits=KILL_LIMITS)
        overshoots.append(max(0.0, time.perf_counter() - started - KILL_LIMITS.wall_s))
        if result.run.result_class in (ResultClass.OK, ResultClass.INFRASTRUCTURE_ERROR):
            raise SandboxError(f"a hostile program ended as {result.run.result_class}: {result.run.reason}")
    return overshoots


@contextlib.contextmanager
def on_cores(cores: Set[int]) -> Iterator[None]:
    """This process, every thread of it, and what it starts meanwhile."""
    before = os.sched_getaffinity(0)
    _pin(cores)
    try:
        yield
    finally:
        _pin(before)


def _pin(cores: Set[int]) -> None:
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(ProcessLookupError):  # a thread that has ended meanwhile
            os.sched_setaffinity(int(task.name), cores)


def _blocking(run: Callable[[], None]) -> Work:
    async def work() -> None:
        run()

    return work
