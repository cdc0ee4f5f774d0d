"""L23, the sandbox's half: a failure of ours is not a wrong answer, and no program can pass its failure off as ours."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from posttrain.core.sandboxing import OutputStatus, ResultClass, SandboxLimits
from posttrain.sandbox import per_execution
from posttrain.sandbox.bubblewrap import Host
from posttrain.sandbox.local import LocalSandbox
from posttrain.sandbox.probe import single_host

LIMITS = SandboxLimits(wall_s=5.0, processes=4)
SOURCE = "def f(x): return x"
BREAKAGES: dict[str, Callable[[Host], Host]] = {
    "no interpreter": lambda host: dataclasses.replace(host, python=Path("/usr/bin/no-such-python")),
    "an interpreter that is none": lambda host: dataclasses.replace(host, python=Path("/usr/bin/true")),
    "no walls": lambda host: dataclasses.replace(host, bwrap=Path("/usr/bin/false")),
    "no filter": lambda host: dataclasses.replace(host, seccomp=b"\0" * 8),
}


class Hosts:
    """Stands for `single_host`: broken for the first so many questions."""

    def __init__(self, breakage: Callable[[Host], Host], num_broken: int) -> None:
        self.broken, self.whole = breakage(single_host()), single_host()
        self.num_broken = num_broken
        self.asked = 0

    def __call__(self) -> Host:
        self.asked += 1
        return self.broken if self.asked <= self.num_broken else self.whole


@pytest.mark.parametrize("breakage", BREAKAGES.values(), ids=BREAKAGES)
def test_what_fails_before_the_program_starts_is_ours(
    monkeypatch: pytest.MonkeyPatch, breakage: Callable[[Host], Host]
) -> None:
    hosts = Hosts(breakage, num_broken=99)
    monkeypatch.setattr(per_execution, "single_host", hosts)
    result = asyncio.run(per_execution.BubblewrapSandbox().call(SOURCE, "f", [[1], [2]], limits=LIMITS))
    assert result.run.result_class is ResultClass.INFRASTRUCTURE_ERROR
    assert "did not become ready" in result.run.reason
    assert [output.status for output in result.outputs] == [OutputStatus.MISSING] * 2
    assert hosts.asked == 2


@pytest.mark.parametrize("breakage", BREAKAGES.values(), ids=BREAKAGES)
def test_a_passing_fault_of_ours_is_tried_again_and_leaves_no_trace(
    monkeypatch: pytest.MonkeyPatch, breakage: Callable[[Host], Host]
) -> None:
    monkeypatch.setattr(per_execution, "single_host", Hosts(breakage, num_broken=1))
    sandbox = per_execution.BubblewrapSandbox()
    assert asyncio.run(sandbox.call(SOURCE, "f", [[1]], limits=LIMITS)).outputs[0].value == 1
    monkeypatch.setattr(per_execution, "single_host", Hosts(breakage, num_broken=1))
    assert asyncio.run(sandbox.run(["true"], limits=LIMITS)).result_class is ResultClass.OK


def test_what_the_program_causes_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = Hosts(lambda host: host, num_broken=0)
    monkeypatch.setattr(per_execution, "single_host", hosts)
    asyncio.run(per_execution.BubblewrapSandbox().call("1/0", "f", [[1]], limits=LIMITS))
    assert hosts.asked == 1


@pytest.mark.parametrize("memory_mib", [1, 8, 24])
def test_a_program_with_too_little_memory_to_start_is_not_our_fault(memory_mib: int) -> None:
    limits = dataclasses.replace(LIMITS, memory_mib=memory_mib)
    result = asyncio.run(LocalSandbox().call("import decimal, json\n" + SOURCE, "f", [[1]], limits=limits))
    assert result.run.result_class not in (ResultClass.INFRASTRUCTURE_ERROR, ResultClass.TIME_LIMIT)


def test_a_host_that_is_busy_elsewhere_does_not_time_a_program_out() -> None:
    async def with_a_blocked_loop() -> ResultClass:
        limits = dataclasses.replace(LIMITS, wall_s=0.3)
        source = "import time\ndef f(x): time.sleep(0.02)"
        call = asyncio.create_task(LocalSandbox().call(source, "f", [[n] for n in range(3)], limits=limits))
        await asyncio.sleep(0.1)
        import time

        time.sleep(0.6)
        return (await call).run.result_class

    assert asyncio.run(with_a_blocked_loop()) is ResultClass.OK
