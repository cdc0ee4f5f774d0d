"""A session's interpreter: state from cell to cell, limits of each cell, and that nothing is lost silently."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import subprocess
from collections.abc import Awaitable, Callable

import pytest

from posttrain.core.errors import SandboxError, UserError
from posttrain.core.sandboxing import CellResult, ResultClass, SandboxLimits, TestOutcome
from posttrain.sandbox.inside import census
from posttrain.sandbox.local import LocalSandbox
from posttrain.sandbox.probe import slot_isolation
from posttrain.sandbox.session import Session

LIMITS = SandboxLimits(wall_s=20.0, cpu_s=10.0, memory_mib=256, processes=8, disk_mib=8)
TREE = {"a.txt": "one\n", "pkg/m.py": "def f(): return 1\n"}
SANDBOX = LocalSandbox()


def within(steps: Callable[[Session], Awaitable[None]], *, background: bool = False) -> None:
    async def run() -> None:
        session = await SANDBOX.session(TREE, limits=LIMITS, background=background)
        try:
            await steps(session)
        finally:
            await session.close()

    asyncio.run(run())


async def cell(session: Session, code: str, **limits: float) -> CellResult:
    return await session.cell(code, limits=dataclasses.replace(LIMITS, **limits))  # type: ignore[arg-type]


async def said(session: Session, code: str) -> str:
    """By a cell of an interpreter that lives."""
    result = await cell(session, code)
    assert result.run.result_class is ResultClass.OK, result
    assert not result.fresh
    return result.run.stdout


async def sh(session: Session, line: str, **limits: float) -> str:
    step = dataclasses.replace(LIMITS, **limits)  # type: ignore[arg-type]
    return (await session.exec(["sh", "-c", line], limits=step)).stdout


async def begin(session: Session, code: str = "x = 41") -> None:
    result = await cell(session, code)
    assert result.run.result_class is ResultClass.OK, result
    assert result.fresh
    assert not result.ended


async def usable(session: Session) -> None:
    """With a fresh interpreter that says so, then with one that keeps its state, and for all else too."""
    await begin(session, "y = 1")
    assert await said(session, "y") == "1\n"
    assert await sh(session, "cat a.txt") == "one\n"
    assert await session.read("a.txt") == b"one\n"


def test_state_stays_and_the_last_expression_is_printed_as_a_notebook_would() -> None:
    async def steps(session: Session) -> None:
        await begin(session, "import os\nx = 41\ndef f(): return x + 1")
        assert await said(session, "f()") == "42\n"
        assert await said(session, "x += 1; print(x)\n'a\\n'") == "42\n'a\\n'\n"
        assert await said(session, "None") == await said(session, "") == await said(session, "# nothing") == ""
        assert await said(session, "_ = 3; _") == "3\n"
        assert await said(session, "for i in range(2):\n    i\n") == ""
        assert await said(session, "os.path.basename(os.getcwd()), sorted(os.listdir()), __name__") == (
            "('work', ['a.txt', 'pkg'], '__main__')\n"
        )
        assert await said(session, "'ünï \\udc80'") == "'ünï \\udc80'\n"

    within(steps)


def test_streams_of_a_cell_are_its_own_also_for_the_processes_that_it_starts() -> None:
    async def steps(session: Session) -> None:
        await begin(session, "import subprocess, sys, os")
        result = await cell(session, "print('out'); print('err', file=sys.stderr); os.write(1, b'raw\\n')\nNone")
        assert (result.run.stdout, result.run.stderr) == ("out\nraw\n", "err\n")
        result = await cell(session, "subprocess.run(['sh', '-c', 'echo o; echo e >&2; cat']).returncode")
        assert (result.run.stdout, result.run.stderr) == ("o\n0\n", "e\n")
        assert (await cell(session, "input()")).run.stderr.endswith("EOFError: EOF when reading a line\n")

    within(steps)


def test_an_exception_is_a_program_error_with_its_traceback_and_the_interpreter_lives_on() -> None:
    async def steps(session: Session) -> None:
        await begin(session, "x = 1\ndef f():\n    raise ValueError('oh')")
        result = await cell(session, "x = 2\nprint('so far')\nf()\nx = 3")
        run = result.run
        assert run.result_class is ResultClass.PROGRAM_ERROR
        assert run.reason == "the cell raised an exception"
        assert run.exit_code is None
        assert run.stdout == "so far\n"
        assert run.stderr == (
            "Traceback (most recent call last):\n"
            '  File "<cell 2>", line 3, in <module>\n    f()\n'
            "  File \"<cell 1>\", line 3, in f\n    raise ValueError('oh')\n"
            "ValueError: oh\n"
        )
        assert not result.fresh
        assert not result.ended
        assert await said(session, "x") == "2\n"

    within(steps)


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("x = (", "SyntaxError: '(' was never closed"),
        ("x = '\0'", "null bytes"),
        ("'\udc80'", "UnicodeEncodeError"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("def f(): f()\nf()", "RecursionError"),
        ("x = bytearray(1 << 40)", "MemoryError"),
        ("class E(BaseException):\n    def __str__(self): raise E\nraise E", "str() failed"),
        ("class R:\n    def __repr__(self): 1/0\nR()", "ZeroDivisionError"),
    ],
)
def test_whatever_is_raised_is_told(code: str, sentence: str) -> None:
    async def steps(session: Session) -> None:
        await begin(session)
        result = await cell(session, code)
        assert result.run.result_class is ResultClass.PROGRAM_ERROR
        assert sentence in result.run.stderr
        assert "posttrain" not in result.run.stderr
        assert await said(session, "x") == "41\n"

    within(steps)


PROGRAM_ERROR, SIGNAL = ResultClass.PROGRAM_ERROR, ResultClass.SIGNAL
ENDINGS: dict[str, tuple[str, dict[str, float], ResultClass]] = {
    "exit without saying so": ("import os; print('x', flush=True); os._exit(0)", {}, PROGRAM_ERROR),
    "exit": ("import sys; sys.exit()", {}, PROGRAM_ERROR),
    "exit with a code": ("import sys; sys.exit(3)", {}, PROGRAM_ERROR),
    "exit with words": ("raise SystemExit('good bye')", {}, PROGRAM_ERROR),
    "signal": ("import os; os.kill(os.getpid(), 15)", {}, SIGNAL),
    "kill": ("import os; os.kill(os.getpid(), 9)", {}, SIGNAL),
    "kill everybody": ("import os\ntry:\n    os.kill(-1, 9)\nfinally:\n    os.kill(os.getpid(), 9)", {}, SIGNAL),
    "abort": ("import os; os.abort()", {}, SIGNAL),
    "crash": ("import ctypes; ctypes.string_at(0)", {}, SIGNAL),
    "forbidden call": ("import os; os.chroot('/')", {}, ResultClass.POLICY_DENIED),
    "time": ("while True: pass", {"wall_s": 0.2}, ResultClass.TIME_LIMIT),
    "sleep": ("import time; time.sleep(60)", {"wall_s": 0.2}, ResultClass.TIME_LIMIT),
    "time, with all signals ignored": (
        "import signal\nfor s in set(signal.Signals) - {9, 19}: signal.signal(s, signal.SIG_IGN)\n"
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
        {"wall_s": 0.2},
        ResultClass.TIME_LIMIT,
    ),
    "stop itself": ("import os; os.kill(os.getpid(), 19)", {"wall_s": 0.2}, ResultClass.TIME_LIMIT),
    "processor time": ("while True: pass", {"cpu_s": 1.0}, ResultClass.CPU_LIMIT),
    "output": ("while True: print('x' * 100)", {"output_kib": 4}, ResultClass.OUTPUT_LIMIT),
    "output that is over at once": ("print('x' * 6000)", {"output_kib": 4}, ResultClass.OUTPUT_LIMIT),
    "output of the last value": ("'x' * 6000", {"output_kib": 4}, ResultClass.OUTPUT_LIMIT),
    "errors without end": ("import os\nwhile True: os.write(2, b'x' * 65536)", {}, ResultClass.OUTPUT_LIMIT),
    "closes all it finds": ("import os; os.closerange(0, 1000)", {}, PROGRAM_ERROR),
    "opens others in their place": (
        "import os\nos.closerange(3, 1000)\nopened = [open('/dev/zero', 'r+b', 0) for _ in range(64)]",
        {},
        PROGRAM_ERROR,
    ),
    "fork bomb": (
        "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass",
        {"wall_s": 0.3},
        ResultClass.TIME_LIMIT,
    ),
    "ends with a child that holds its streams": (
        "import os\nif os.fork() == 0:\n    os.setsid()\n    while True: pass\nos._exit(7)",
        {},
        PROGRAM_ERROR,
    ),
}


@pytest.mark.parametrize(("code", "limits", "expected"), ENDINGS.values(), ids=ENDINGS)
@pytest.mark.parametrize("background", [False, True], ids=["alone", "background"])
def test_a_cell_that_ends_the_interpreter_has_its_class_and_the_next_cell_a_fresh_one(
    code: str, limits: dict[str, float], expected: ResultClass, background: bool
) -> None:
    async def steps(session: Session) -> None:
        await begin(session)
        result = await cell(session, code, **limits)
        assert result.run.result_class is expected, result
        assert not result.fresh
        assert result.ended
        await usable(session)

    within(steps, background=background)


@pytest.mark.parametrize(("code", "exit_code"), [("import os; os._exit(0)", 0), ("raise SystemExit(3)", 3)])
def test_an_exit_of_the_interpreter_is_never_ok(code: str, exit_code: int) -> None:
    async def steps(session: Session) -> None:
        result = await cell(session, code)
        assert result.fresh
        assert result.ended
        assert result.run.exit_code == exit_code
        assert result.run.reason == f"the cell ended the interpreter, which exited with {exit_code}"

    within(steps)


HARMLESS = {
    "other streams": "import io, sys; sys.stdout = sys.stderr = sys.__stdout__ = io.StringIO()",
    "no streams": "import sys; del sys.stdout, sys.stderr, sys.stdin",
    "closed streams": "import sys; sys.stdout.close(); sys.stderr.close(); sys.stdin.close()",
    "detached streams": "import sys; sys.stdout.detach()\nNone",
    "closed descriptors of streams": "import os; os.closerange(0, 3)",
    "another folder": "import os; os.mkdir('d'); os.chdir('d'); os.rmdir('../d')",
    "a folder that cannot be entered again": "import os; os.mkdir('d'); os.chdir('d'); os.chmod('.', 0)",
    "signals ignored": "import signal\nfor s in set(signal.Signals) - {9, 19}: signal.signal(s, signal.SIG_IGN)",
    "no main module": "import sys; [sys.modules.pop(n) for n in list(sys.modules) if n != 'builtins']\nNone",
    "no path": "import sys; sys.path[:] = []",
    "other hooks": "import sys; sys.excepthook = sys.unraisablehook = None; sys.settrace(lambda *a: None)",
    "threads": "import threading; threading.Thread(target=lambda: [print(x) for _ in iter(int, 1)]).start()",
    "children": "import os\nfor _ in range(4):\n    if os.fork() == 0:\n        while True: print(x)",
    "cannot exit": "import atexit, time; atexit.register(time.sleep, 60)",
    "shadows what we use": "[open(n + '.py', 'w').write('1/0') for n in ('traceback', 'ast', 'marshal', 'os')]\nNone",
}


@pytest.mark.parametrize("code", HARMLESS.values(), ids=HARMLESS)
def test_a_hostile_cell_harms_neither_the_next_one_nor_the_session(code: str) -> None:
    async def steps(session: Session) -> None:
        await begin(session)
        result = await cell(session, code)
        assert result.run.result_class is ResultClass.OK, result
        assert not result.ended
        result = await cell(session, "print(x)")
        assert not result.fresh
        assert "41" in result.run.stdout, result
        assert await session.read("a.txt") == b"one\n"
        assert await sh(session, "cat a.txt") == "one\n"
        await session.restore(await session.snapshot())
        await usable(session)

    within(steps)


GARBAGE = """\
import os
for _ in range(100):
    for fd in range(3, 64):
        try:
            os.write(fd, TEXT)
        except OSError:
            pass
"""


@pytest.mark.parametrize("text", [b"0", b"1", bytes(1000), b"cell", b"e"])
def test_garbage_for_the_server_ends_the_cell_at_most(text: bytes) -> None:
    async def steps(session: Session) -> None:
        await begin(session)
        garbage = f"TEXT = {text!r}\n{GARBAGE}"
        garbled = (await cell(session, garbage, wall_s=1.0)).run
        assert garbled.result_class in (ResultClass.OK, PROGRAM_ERROR, ResultClass.TIME_LIMIT)
        result = await cell(session, "print(x)", wall_s=1.0)
        assert result.ended or result.run.stdout == "41\n", result
        await session.restore(await session.snapshot())
        await usable(session)

    within(steps)


def test_an_interpreter_lives_on_through_steps_whose_processes_are_swept() -> None:
    async def steps(session: Session) -> None:
        await begin(session)
        line = "(setsid sh -c 'while :; do echo tick >> ticks; done' &); while [ ! -s ticks ]; do :; done; kill -0 -1"
        await sh(session, line)
        before = await session.read("ticks")
        assert await said(session, "import time; time.sleep(0.2); x") == "41\n"
        assert await session.read("ticks") == before
        assert (await session.exec(["sh", "-c", "yes"], limits=LIMITS)).result_class is ResultClass.OUTPUT_LIMIT
        bomb = dataclasses.replace(LIMITS, wall_s=0.3)
        run = await session.exec(["sh", "-c", "f() { f | f & }; f; while :; do :; done"], limits=bomb)
        assert run.result_class in (ResultClass.TIME_LIMIT, ResultClass.OUTPUT_LIMIT, ResultClass.PROGRAM_ERROR)
        assert await sh(session, "kill -9 -1; echo alone") == "alone\n"
        assert await said(session, "x") == "41\n"

    within(steps)


def test_a_step_beside_an_interpreter_is_judged_as_any_other() -> None:
    async def steps(session: Session) -> None:
        await begin(session)
        for line, expected in (
            ("exit 3", PROGRAM_ERROR),
            ("kill -9 $$", SIGNAL),
            ("while :; do :; done", ResultClass.TIME_LIMIT),
            ("yes", ResultClass.OUTPUT_LIMIT),
            ("true", ResultClass.OK),
        ):
            run = await session.exec(["sh", "-c", line], limits=dataclasses.replace(LIMITS, wall_s=1.0))
            assert run.result_class is expected, run
        run = await session.exec(["sh", "-c", "cat; exit 4"], stdin="given", limits=LIMITS)
        assert (run.stdout, run.exit_code) == ("given", 4)
        assert await said(session, "x") == "41\n"

    within(steps)


def test_nothing_of_an_interpreter_runs_between_its_cells() -> None:
    async def steps(session: Session) -> None:
        await begin(session, "import os, threading, time\ndef tick():\n    while True: os.write(ticks, b'.')")
        await cell(
            session,
            "ticks = os.open('ticks', os.O_WRONLY | os.O_CREAT)\nthreading.Thread(target=tick, daemon=True).start()\n"
            "if os.fork() == 0: tick()\n"
            "while os.path.getsize('ticks') < 10: pass",
        )
        before = await session.read("ticks")
        assert len(before) >= 10
        await sh(session, "sleep 0.2")
        assert await session.read("ticks") == before
        await said(session, f"while os.path.getsize('ticks') == {len(before)}: pass")
        assert len(await session.read("ticks")) > len(before)

    within(steps)


WAKING_EACH_OTHER = """\
import os, signal, time
pids = []
for _ in range(3):
    pid = os.fork()
    if pid == 0:
        os.setsid()
        while True:
            for other in range(os.getppid(), os.getppid() + 8):
                try: os.kill(other, signal.SIGCONT)
                except OSError: pass
    pids.append(pid)
time.sleep(0.1)
"""
FORKING_ON = """\
import os
if os.fork() == 0:
    while True:
        if os.fork(): os._exit(0)
while x != 41: pass
"""


@pytest.mark.parametrize("code", [WAKING_EACH_OTHER, FORKING_ON], ids=["waking each other", "forking on"])
def test_what_a_cell_leaves_running_ends_with_it(code: str) -> None:
    async def steps(session: Session) -> None:
        await begin(session)
        result = await cell(session, code)
        assert result.run.result_class is ResultClass.OK
        if result.ended:  # who is too quick for us ends with the interpreter
            await begin(session)
        alive = """\
import os
def lives(pid):
    try:
        os.kill(pid, 0)
        return os.waitpid(pid, os.WNOHANG)[0] == 0
    except OSError as error:
        return error.errno == 10  # it is, and is no child of ours
[pid for pid in range(2, 32768) if lives(pid) and pid != os.getpid()]"""
        assert await said(session, alive) == "[]\n"

    within(steps)


def test_an_interpreter_that_may_not_be_alone_is_not_taken_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    spared = subprocess.Popen(["sleep", "60"])
    pidfd = os.pidfd_open(spared.pid)
    try:
        begun_again, never_ending = iter([2]), iter(range(spared.pid + 2, 1 << 30, 2))
        for numbers in (begun_again, never_ending):
            monkeypatch.setattr(census, "_number_of_a_process", numbers.__next__)
            monkeypatch.setattr(census, "_end", lambda number: None)
            assert not census.Census(spared.pid).end_others(pidfd)
        monkeypatch.setattr(census, "_number_of_a_process", lambda: spared.pid + 1)
        assert census.Census(spared.pid).end_others(pidfd)
    finally:
        os.close(pidfd)
        spared.kill()
        spared.wait()


def test_in_a_session_for_background_processes_they_and_the_interpreter_go_on_together() -> None:
    async def steps(session: Session) -> None:
        await begin(session, "import os, subprocess, threading")
        await sh(session, "(while :; do echo tick >> ticks; done) & echo $! > pid")
        await said(session, "p = subprocess.Popen(['sh', '-c', 'while :; do echo t >> mine; done'])")
        assert (
            await sh(
                session,
                "for f in ticks mine; do n=$(wc -l < $f); while [ $(wc -l < $f) -eq $n ]; do :; done; done; echo on",
            )
            == "on\n"
        )
        assert await said(session, "os.kill(int(open('pid').read()), 9); p.kill(); p.wait()") == "-9\n"
        assert (await cell(session, "os._exit(0)")).ended
        await sh(session, "sleep 60 & echo $! > pid")
        await begin(session)
        assert (await cell(session, "import os; os._exit(0)")).ended
        assert await sh(session, "kill -0 $(cat pid) && echo alive") == "alive\n"

    within(steps, background=True)


def test_an_interpreter_that_a_step_has_ended_is_not_lost_silently() -> None:
    async def steps(session: Session) -> None:
        await begin(session, "import os; open('pid', 'w').write(str(os.getpid())); None")
        await sh(session, "kill -9 $(cat pid); while kill -0 $(cat pid); do :; done")
        await usable(session)
        await sh(session, "sleep 60", wall_s=0.1)  # ends all processes
        await usable(session)

    within(steps, background=True)


def test_a_cells_limits_are_its_own_and_its_memory_the_sessions() -> None:
    async def steps(session: Session) -> None:
        await begin(session, "import resource, time")
        memory = "resource.getrlimit(resource.RLIMIT_AS) == before"
        await said(session, "before = resource.getrlimit(resource.RLIMIT_AS)")
        assert (await cell(session, memory, memory_mib=512, processes=64)).run.stdout == "True\n"
        burn = "until = time.process_time() + 0.7\nwhile time.process_time() < until: pass"
        for _ in range(3):  # together more than one of them may have
            assert (await cell(session, burn, cpu_s=1.0)).run.result_class is ResultClass.OK
        assert (await cell(session, burn)).run.cpu_s == pytest.approx(0.7, abs=0.2)

    within(steps)


def test_a_cell_that_fills_the_disk_has_its_class_and_the_interpreter_lives_on() -> None:
    async def steps(session: Session) -> None:
        await begin(session)
        result = await cell(session, "with open('big', 'wb') as f:\n    while True: f.write(bytes(1 << 16))")
        assert result.run.result_class is ResultClass.DISK_LIMIT
        assert result.run.exit_code is None
        assert await said(session, "import os; os.remove('big'); x") == "41\n"

    within(steps)


@pytest.mark.skipif(not slot_isolation().cgroup, reason="needs a cgroup, which bounds memory over all processes")
def test_a_cell_whose_processes_take_all_memory_has_its_class_and_loses_nothing_silently() -> None:
    code = "import os, time\nfor _ in range(4):\n    if os.fork() == 0: break\nb = bytearray(100 << 20)\ntime.sleep(5)"

    async def steps(session: Session) -> None:
        await begin(session)
        result = await cell(session, code)
        assert result.run.result_class is ResultClass.MEMORY_LIMIT, result
        if result.ended:
            await usable(session)
        else:
            assert await said(session, "x") == "41\n"

    within(steps)


def test_cells_see_what_the_verbs_write_and_the_other_way_round() -> None:
    async def steps(session: Session) -> None:
        await begin(session, "import pkg.m; pkg.m.f()")
        await session.write("new.py", b"v = 7\n")
        assert await said(session, "import new; new.v") == "7\n"
        await said(session, "open('b.txt', 'w').write('two'); None")
        assert await session.read("b.txt") == b"two"
        assert (await session.diff()).keys() == {"b.txt", "new.py"}

    within(steps)


def test_a_snapshot_spares_an_interpreter_that_has_no_file_open_and_a_restore_ends_it() -> None:
    async def steps(session: Session) -> None:
        await begin(session, "import os; os.mkdir('d'); os.chdir('d'); x = 41")
        first = await session.snapshot()
        assert await said(session, "x, os.path.basename(os.getcwd())") == "(41, 'd')\n"
        await said(session, "open('after', 'w').close()")
        await session.restore(first)
        assert await session.list("d") == []
        await begin(session, "f = open('a.txt')")
        second = await session.snapshot()
        await session.restore(second)
        await usable(session)

    within(steps)


def test_a_session_for_background_processes_is_restored_without_its_interpreter_but_not_under_them() -> None:
    async def steps(session: Session) -> None:
        start = await session.snapshot()
        await begin(session)
        await session.restore(start)
        await begin(session)
        await sh(session, "sleep 60 &")
        with pytest.raises(UserError, match="background processes"):
            await session.restore(start)
        with pytest.raises(UserError, match="background processes"):
            await session.snapshot()
        await usable(session)

    within(steps, background=True)


def test_tests_run_when_the_interpreter_is_dead() -> None:
    tests = {"test_a.py": "import os, pytest\ndef test_a():\n    with pytest.raises(OSError): os.kill(PID, 0)\n"}

    async def steps(session: Session) -> None:
        await begin(session, "import os")
        pid = int(await said(session, "os.getpid()"))
        told = {name: text.replace("PID", str(pid)) for name, text in tests.items()}
        result = await session.run_tests(told, ["test_a.py::test_a"], limits=LIMITS)
        assert result.outcomes["test_a.py::test_a"] is TestOutcome.PASSED, result
        await usable(session)

    within(steps)


def test_a_fork_of_a_session_has_an_interpreter_of_its_own() -> None:
    async def steps(session: Session) -> None:
        await begin(session)
        twin = await session.fork()
        try:
            await begin(twin, "x = 1")
            assert await said(session, "x") == "41\n"
        finally:
            await twin.close()

    within(steps)


def test_an_interpreter_ends_with_its_session() -> None:
    async def run() -> None:
        sandbox = LocalSandbox(sessions=1)
        first = await sandbox.session({}, limits=LIMITS)
        await begin(first, "import os, threading; threading.Thread(target=os.read, args=(os.pipe()[0], 1)).start()")
        await first.close()
        with pytest.raises(SandboxError, match="closed"):
            await cell(first, "x")
        second = await sandbox.session({}, limits=LIMITS)
        assert await sh(second, "kill -0 -1 2>/dev/null || echo alone") == "alone\n"
        await begin(second)
        await second.close()
        await sandbox.close()

    asyncio.run(run())


def test_a_lost_session_is_no_fault_of_the_cell() -> None:
    async def steps(session: Session) -> None:
        await begin(session)
        running = asyncio.create_task(cell(session, "import time; time.sleep(60)"))
        await asyncio.sleep(0.2)
        session._ground.slot.kill()
        result = await running
        assert result.run.result_class is ResultClass.INFRASTRUCTURE_ERROR
        assert result.ended
        with pytest.raises(SandboxError, match="lost"):
            await cell(session, "x")

    within(steps)
