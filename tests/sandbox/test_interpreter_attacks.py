"""Cells that are out to harm: each is contained and has its class, and the session is of use afterwards."""

from __future__ import annotations

import os
import subprocess

import pytest
from tests.sandbox.cells import begin, cell, said, sh, usable, within

from posttrain.core.sandboxing import ResultClass
from posttrain.sandbox.inside import census
from posttrain.sandbox.probe import slot_isolation
from posttrain.sandbox.session import Session

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


def test_a_copy_that_a_cell_forks_ends_with_the_cell_and_takes_no_other() -> None:
    async def steps(session: Session) -> None:
        await begin(session)
        result = await cell(session, "import os, time\nif os.fork(): time.sleep(0.2)")
        assert (result.run.result_class, result.ended) == (ResultClass.OK, False), result
        assert await said(session, "x") == "41\n"

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
