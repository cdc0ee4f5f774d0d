"""What a caller of the local sandbox gets: values, limits, files, refusals."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import pytest

from posttrain.core import registry
from posttrain.core.errors import ConfigError, SandboxError, UserError
from posttrain.core.protocols import Sandbox
from posttrain.core.sandboxing import CallResult, OutputStatus, ResultClass, RunResult, SandboxLimits
from posttrain.sandbox.cgroup import find_parents
from posttrain.sandbox.local import LocalSandbox
from posttrain.sandbox.per_execution import BubblewrapSandbox

LIMITS = SandboxLimits(wall_s=10.0, cpu_s=5.0, memory_mib=128, processes=8, output_kib=64, disk_mib=4)
SANDBOX: Sandbox = LocalSandbox()


def call(source: str, inputs: Sequence[Sequence[Any]] = ((1,),), **limits: Any) -> CallResult:
    return asyncio.run(SANDBOX.call(source, "f", inputs, limits=dataclasses.replace(LIMITS, **limits)))


def run(*argv: str, files: dict[str, str] | None = None, stdin: str = "", **limits: Any) -> RunResult:
    return asyncio.run(SANDBOX.run(argv, files=files, stdin=stdin, limits=dataclasses.replace(LIMITS, **limits)))


def test_values_come_back_in_order_with_their_types() -> None:
    result = call("def f(x, y=()):\n    return x, [y, {'k': 0.5}]", [[1], ["a", (2, None)], [True]])
    assert result.run.result_class is ResultClass.OK
    assert [output.value for output in result.outputs] == [
        (1, [(), {"k": 0.5}]),
        ("a", [(2, None), {"k": 0.5}]),
        (True, [(), {"k": 0.5}]),
    ]


def test_an_exception_belongs_to_its_input_alone() -> None:
    result = call("def f(x):\n    return 10 // x", [[5], [0], [2]])
    assert [output.status for output in result.outputs] == [OutputStatus.VALUE, OutputStatus.RAISED, OutputStatus.VALUE]
    assert result.outputs[1].error == "ZeroDivisionError: integer division or modulo by zero"
    assert result.run.result_class is ResultClass.OK


def test_state_of_the_program_lives_as_long_as_its_call() -> None:
    source = "seen = []\ndef f(x):\n    seen.append(x)\n    return len(seen)"
    assert [output.value for output in call(source, [[1], [1], [1]]).outputs] == [1, 2, 3]
    assert call(source).outputs[0].value == 1


def test_large_inputs_and_answers_pass() -> None:
    data = list(range(100_000))
    assert call("def f(x):\n    return x[::-1]", [[data]]).outputs[0].value == data[::-1]


def test_ordinary_python_works() -> None:
    source = """
import collections, dataclasses, functools, itertools, math, random, re, string, threading, typing
@dataclasses.dataclass
class Point:
    x: int
def f(x):
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    with open("/tmp/file", "w") as file:
        file.write("kept")
    return dataclasses.asdict(Point(x)), open("/tmp/file").read(), __name__
"""
    assert call(source).outputs[0].value == ({"x": 1}, "kept", "candidate")


def test_the_order_of_sets_is_the_same_each_time() -> None:
    source = "def f(x):\n    return list({'alpha', 'beta', 'gamma', 'delta', 'epsilon'})"
    assert len({str(call(source).outputs[0].value) for _ in range(3)}) == 1


def test_prints_are_kept_apart_from_answers() -> None:
    result = call("import sys\ndef f(x):\n    print('out')\n    print('err', file=sys.stderr)\n    return x")
    assert (result.run.stdout, result.run.stderr) == ("out\n", "err\n")
    assert result.outputs[0].value == 1


@pytest.mark.parametrize("source", ["def f(x:\n", "raise ValueError('no')", "g = 1", "x = '\0'", "1/0"])
def test_a_source_that_cannot_be_loaded_is_the_programs_error(source: str) -> None:
    result = call(source, [[1], [2]])
    assert result.run.result_class is ResultClass.PROGRAM_ERROR
    assert [output.status for output in result.outputs] == [OutputStatus.MISSING] * 2
    assert result.outputs[0].error


def test_use_is_measured() -> None:
    result = call("def f(x):\n    block = bytearray(40 << 20)\n    return sum(range(2_000_000)) > 0").run
    assert 0 < result.cpu_s < LIMITS.cpu_s
    assert 0 < result.wall_s < LIMITS.wall_s
    assert 40 < result.peak_memory_mib < 100


def test_use_of_an_ended_program_is_measured_too() -> None:
    result = call("block = bytearray(40 << 20)\nwhile True: pass", wall_s=0.5).run
    assert result.result_class is ResultClass.TIME_LIMIT
    assert result.cpu_s > 0
    assert result.peak_memory_mib > 40


def test_output_over_the_cap_is_cut_there_and_marked() -> None:
    result = run("python3", "-c", "print('x' * 1_000_000)", output_kib=8)
    assert result.result_class is ResultClass.OUTPUT_LIMIT
    assert result.truncated
    assert result.stdout == "x" * 8192


def test_output_within_the_cap_is_whole() -> None:
    result = run("python3", "-c", "print('x' * 8191)", output_kib=8)
    assert (result.result_class, len(result.stdout), result.truncated) == (ResultClass.OK, 8192, False)


def test_cpu_time_has_a_limit_of_its_own() -> None:
    result = call("def f(x):\n    while True: pass", cpu_s=0.5)
    assert result.run.result_class is ResultClass.CPU_LIMIT
    assert result.outputs[0].status is OutputStatus.MISSING


@pytest.mark.skipif(not find_parents(), reason="the host does not let us make control groups")
def test_processes_that_are_too_much_together_are_a_memory_limit_whomever_the_kernel_ends() -> None:
    """Each of these is smaller than the server, which the kernel then ends first."""
    source = """
import os, time
def f(count):
    for _ in range(count):
        if os.fork() == 0:
            held = bytearray(1 << 20)
            for page in range(0, len(held), 4096): held[page] = 1
            time.sleep(60)
    time.sleep(60)
"""

    async def scenario() -> tuple[CallResult, CallResult]:
        sandbox = LocalSandbox(concurrency=1)
        limits = dataclasses.replace(LIMITS, wall_s=60.0, memory_mib=16, processes=110, disk_mib=1)
        hog = await sandbox.call(source, "f", [[100]], limits=limits)
        neighbour = await sandbox.call("def f(x): return x", "f", [[1]], limits=LIMITS)
        await sandbox.close()
        return hog, neighbour

    hog, neighbour = asyncio.run(scenario())
    assert hog.run.result_class is ResultClass.MEMORY_LIMIT, hog.run
    assert neighbour.run.result_class is ResultClass.OK


def test_run_gets_files_arguments_and_standard_input() -> None:
    source = "import sys, pathlib\nprint(sys.argv[1], sys.stdin.read(), pathlib.Path('data/a.txt').read_text())"
    result = run("python3", "main.py", "one", files={"main.py": source, "./data/a.txt": "text"}, stdin="in")
    assert (result.stdout, result.exit_code) == ("one in text\n", 0)


def test_run_reports_exit_codes_and_signals_apart() -> None:
    assert (run("sh", "-c", "exit 137").result_class, run("sh", "-c", "exit 137").exit_code) == ("program_error", 137)
    killed = run("sh", "-c", "kill -9 $$")
    assert (killed.result_class, killed.exit_code) == (ResultClass.SIGNAL, None)


def test_a_program_that_is_not_there_is_the_programs_error() -> None:
    result = run("no-such-program")
    assert (result.result_class, result.exit_code) == (ResultClass.PROGRAM_ERROR, 127)


@pytest.mark.parametrize(
    "name", ["../out", "/etc/x", "", ".", "a/../../b", "a\0b", "a" * 300, "/".join(["d"] * 900), "\ud800"]
)
def test_files_cannot_leave_the_working_directory(name: str) -> None:
    with pytest.raises(UserError, match="for the sandbox"):
        run("true", files={name: "x"})


def test_a_file_cannot_also_be_a_folder() -> None:
    with pytest.raises(UserError, match="is a file itself"):
        run("true", files={"./a": "x", "a/b": "y"})


@pytest.mark.parametrize("files", [{"big": "x" * (5 << 20)}, {f"{n}": "x" for n in range(3000)}], ids=["big", "many"])
def test_more_files_than_disk_is_the_programs_disk_limit(files: dict[str, str]) -> None:
    assert run("true", files=files).result_class is ResultClass.DISK_LIMIT


def test_files_that_just_fit_are_laid() -> None:
    assert run("cat", "big", files={"big": "x" * (3 << 20)}, output_kib=4096).result_class is ResultClass.OK


def test_executions_wait_for_a_slot_and_only_so_many_run_at_once() -> None:
    async def overlapping(concurrency: int) -> int:
        sandbox = LocalSandbox(concurrency=concurrency)
        source = "import time\ndef f(x):\n    a = time.monotonic()\n    time.sleep(0.2)\n    return a, time.monotonic()"
        results = await asyncio.gather(*(sandbox.call(source, "f", [[1]], limits=LIMITS) for _ in range(3)))
        spans = [result.outputs[0].value for result in results]
        overlaps = [len([start for start, end in spans if start <= moment < end]) for moment, _ in spans]
        return max(overlaps)

    assert asyncio.run(overlapping(1)) == 1
    assert asyncio.run(overlapping(3)) > 1


def test_nothing_of_the_host_is_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN_OF_THE_HOST", "secret")
    assert "TOKEN" not in run("env").stdout
    assert "secret" not in str(call("import os\ndef f(x):\n    return dict(os.environ)").outputs)


def test_descriptors_of_the_host_do_not_come_in() -> None:
    read, write = os.pipe()
    try:
        os.set_inheritable(read, True)
        source = "import os\ndef f(x):\n    return [n for n in range(3, 1000) if opened(n)]\n"
        source += (
            "def opened(n):\n    try:\n        os.fstat(n)\n    except OSError:\n        return False\n    return True"
        )
        assert len(call(source).outputs[0].value) == 2  # inputs and answers
        assert run("python3", "-c", source + "\nprint(f(1))").stdout == "[]\n"
    finally:
        os.close(read)
        os.close(write)


def test_verbs_that_are_not_there_are_refused_by_name() -> None:
    with pytest.raises(SandboxError, match="'test'"):
        asyncio.run(BubblewrapSandbox().test({}, {}, [], limits=LIMITS))
    with pytest.raises(SandboxError, match="'session'"):
        asyncio.run(BubblewrapSandbox().session({}))


def test_an_unknown_profile_is_refused() -> None:
    with pytest.raises(SandboxError, match=r"no profile 'nothing' \(known: python, numpy, pytest\)"):
        asyncio.run(SANDBOX.call("def f(x): pass", "f", [[1]], limits=LIMITS, profile="nothing"))


def test_it_is_a_component_with_checked_options() -> None:
    assert registry.build("sandbox", {"name": "local", "concurrency": 3}).concurrency == 3
    with pytest.raises(ConfigError, match="at least 1"):
        registry.build("sandbox", {"name": "local", "concurrency": 0})
    with pytest.raises(ConfigError, match="isolation"):
        registry.build("sandbox", {"name": "local", "isolation": "none"})
