"""A session's interpreter: state from cell to cell, limits of each cell, and that nothing is lost silently."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import pytest
from tests.sandbox.cells import LIMITS, begin, cell, said, sh, usable, within
from tests.sandbox.serving_thread import serving

from posttrain.core.errors import SandboxError, UserError
from posttrain.core.sandboxing import ResultClass, TestOutcome
from posttrain.sandbox.local import LocalSandbox
from posttrain.sandbox.remote import RemoteSandbox
from posttrain.sandbox.session import Session


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
            ("exit 3", ResultClass.PROGRAM_ERROR),
            ("kill -9 $$", ResultClass.SIGNAL),
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
        assert (await cell(session, "import resource, time", cpu_s=1.0)).fresh
        memory = "resource.getrlimit(resource.RLIMIT_AS) == before"
        await said(session, "before = resource.getrlimit(resource.RLIMIT_AS)")
        assert (await cell(session, memory, memory_mib=512, processes=64)).run.stdout == "True\n"
        burn = "until = time.process_time() + 0.8\nwhile time.process_time() < until: pass"
        for _ in range(3):  # together more than one of them may have
            assert (await cell(session, burn, cpu_s=1.0)).run.result_class is ResultClass.OK
        assert (await cell(session, burn)).run.cpu_s == pytest.approx(0.8, abs=0.2)

    within(steps)


def test_a_cell_that_fills_the_disk_has_its_class_and_the_interpreter_lives_on() -> None:
    async def steps(session: Session) -> None:
        await begin(session)
        result = await cell(session, "with open('big', 'wb') as f:\n    while True: f.write(bytes(1 << 16))")
        assert result.run.result_class is ResultClass.DISK_LIMIT
        assert result.run.exit_code is None
        assert await said(session, "import os; os.remove('big'); x") == "41\n"

    within(steps)


def test_an_interpreter_with_all_the_threads_that_it_may_have_lives_on() -> None:
    async def steps(session: Session) -> None:
        code = f"import threading\nfor _ in range({LIMITS.processes - 1}):\n    threading.Thread(target=wait).start()"
        await begin(session, "import time\ndef wait():\n    while True: time.sleep(1)")
        assert await said(session, code) == ""
        assert await sh(session, "echo fine") == "fine\n"
        assert await said(session, "threading.active_count()") == f"{LIMITS.processes}\n"

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


def test_cells_travel(tmp_path: Path) -> None:
    async def ask(client: RemoteSandbox) -> None:
        session = await client.session({}, limits=LIMITS)
        first = await session.cell("x = 1\n1/0", limits=LIMITS)
        assert first.fresh
        assert "ZeroDivisionError" in first.run.stderr
        second = await session.cell("print(x); import os; os._exit(3)", limits=LIMITS)
        assert (second.fresh, second.ended, second.run.exit_code) == (False, True, 3)
        with pytest.raises(UserError, match="no snapshot"):
            await session.restore("none")
        assert (await session.cell("2", limits=LIMITS)).run.stdout == "2\n"
        await session.close()
        await client.close()

    with serving(LocalSandbox(), tmp_path) as server:
        asyncio.run(ask(server.client()))
