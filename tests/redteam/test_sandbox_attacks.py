"""Hostile programs against the local sandbox: how each one ends, and that it neither wins nor hurts the next.

The numbers are those of the table of cheats: 1 exit, 2 lying objects, 5 forged streams, 6 survivors, 7 looking for the
harness, 8 reading the host, 10 network, 22 monkey-patching, 24 bombs, 25 files that lead elsewhere. Every program
should give `2 * x`, and none does so honestly: a right answer from one of them would be a forged one.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from posttrain.core.sandboxing import CallResult, OutputStatus, ResultClass, SandboxLimits
from posttrain.sandbox.local import LocalSandbox

LIMITS = SandboxLimits(wall_s=0.8, cpu_s=10.0, memory_mib=96, processes=6, output_kib=64, disk_mib=2)
PATIENT = SandboxLimits(wall_s=20.0, cpu_s=1.0, memory_mib=96, processes=6, output_kib=64, disk_mib=2)
SANDBOX = LocalSandbox()
HOST_SECRET = "a secret of the host"
OK, ERROR, SIGNAL = ResultClass.OK, ResultClass.PROGRAM_ERROR, ResultClass.SIGNAL
TIME, CPU, MEMORY = ResultClass.TIME_LIMIT, ResultClass.CPU_LIMIT, ResultClass.MEMORY_LIMIT
OUTPUT, DISK, PROCESSES = ResultClass.OUTPUT_LIMIT, ResultClass.DISK_LIMIT, ResultClass.PROCESS_LIMIT
DENIED = ResultClass.POLICY_DENIED
VALUE, RAISED = OutputStatus.VALUE, OutputStatus.RAISED
NOT_PLAIN, MISSING = OutputStatus.NOT_PLAIN, OutputStatus.MISSING


@dataclass(frozen=True)
class Attack:
    name: str
    source: str
    ends: tuple[ResultClass, ...]
    """The classes that are right; more than one where the program itself is a race."""
    output: tuple[OutputStatus, ...]
    limits: SandboxLimits = LIMITS


def function(body: str, imports: str = "os, sys, signal, time") -> str:
    lines = "\n".join("    " + line for line in body.strip().splitlines())
    return f"import {imports}\ndef f(x):\n{lines}\n"


def c_call(expression: str) -> str:
    return function(
        f"libc = ctypes.CDLL(None, use_errno=True)\nreturn 'refused' if {expression} == -1 else 'done'", "ctypes"
    )


EVERY_FD = "for fd in range(3, 200):\n    try:\n        os.write(fd, {data})\n    except OSError:\n        pass\n"

ATTACKS = [
    # 1: leaving before the verdict
    Attack("exit code zero from inside", function("os._exit(0)"), (OK,), (MISSING,)),
    Attack("exit code zero while loading", "import os\nos._exit(0)", (OK,), (MISSING,)),
    Attack("sys.exit", function("sys.exit(0)"), (OK,), (MISSING,)),
    Attack("SystemExit while loading", "raise SystemExit(0)", (OK,), (MISSING,)),
    Attack("KeyboardInterrupt", function("raise KeyboardInterrupt"), (ERROR, SIGNAL), (MISSING,)),
    Attack("exit code of a limit", function("os._exit(137)"), (ERROR,), (MISSING,)),
    # 2: objects that lie
    Attack(
        "equal to everything",
        "class Liar:\n    def __eq__(self, other): return True\n    __hash__ = None\ndef f(x): return Liar()",
        (OK,),
        (NOT_PLAIN,),
    ),
    Attack(
        "subclass of int",
        "class Liar(int):\n    def __eq__(self, other): return True\n    __hash__ = None\ndef f(x): return Liar(7)",
        (OK,),
        (NOT_PLAIN,),
    ),
    Attack("subclass of str in a list", "class S(str): pass\ndef f(x): return [S('2')]", (OK,), (NOT_PLAIN,)),
    Attack("not a number", "def f(x): return float('nan')", (OK,), (NOT_PLAIN,)),
    Attack("a cycle", "def f(x):\n    a = []\n    a.append(a)\n    return a", (OK,), (NOT_PLAIN,)),
    Attack("too deep", "def f(x):\n    a = []\n    for _ in range(500): a = [a]\n    return a", (OK,), (NOT_PLAIN,)),
    Attack("too large", "def f(x): return 'x' * (4 << 20)", (OK,), (NOT_PLAIN,)),
    Attack("an int too long to print", "def f(x): return 10 ** 100_000", (OK,), (NOT_PLAIN,)),
    Attack("no valid Unicode", "def f(x): return '\\ud800'", (OK,), (NOT_PLAIN,)),
    Attack(
        "an exception that lies",
        "class E(Exception):\n    def __str__(self): raise SystemError\ndef f(x): raise E",
        (OK,),
        (RAISED,),
    ),
    # 5: forged reports
    Attack("success on every stream", function("print('ok', 2 * x)\nsys.stderr.write('PASSED')"), (OK,), (VALUE,)),
    Attack(
        "an answer on every descriptor", function(EVERY_FD.format(data="b'{\"value\":2}\\n'")), (DENIED,), (MISSING,)
    ),
    Attack(
        "pid 1's report on every descriptor", function(EVERY_FD.format(data="b'R0 0 0 0 0\\n'")), (DENIED,), (MISSING,)
    ),
    Attack(
        "an answer before the input",
        "import os\n" + EVERY_FD.format(data='b\'{"token":"","value":2}\\n\'') + "def f(x): pass",
        (DENIED,),
        (MISSING,),
    ),
    Attack(
        "two answers with the right token",
        "import os, sys\ndef f(x):\n    l = sys._getframe(2).f_locals\n    token, fd = l['token'], l['answer']\n"
        '    os.write(fd, f\'{{"token":"{token}","value":7}}\\n\'.encode() * 2)\n    return 7',
        (DENIED,),
        (MISSING,),
    ),
    Attack("channel closed", function("os.closerange(0, 1000)"), (ERROR,), (MISSING,)),
    Attack("invalid UTF-8 printed", function("os.write(1, bytes(range(256)))"), (OK,), (VALUE,)),
    # 6: survivors
    Attack(
        "daemon",
        function(
            "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        time.sleep(60)\n    os._exit(0)"
        ),
        (OK,),
        (VALUE,),
    ),
    Attack("child that holds the pipes", function("if os.fork() == 0:\n    time.sleep(60)"), (OK,), (VALUE,)),
    Attack(
        "thread that stays",
        function("threading.Thread(target=time.sleep, args=[60]).start()", "threading, time"),
        (OK,),
        (VALUE,),
    ),
    Attack("returning twice", function("os.fork()\nreturn 0"), (DENIED, OK), (VALUE, MISSING)),
    # 7: looking for the harness
    Attack(
        "expected values by frames and gc",
        function(
            "found = [str(o)[:10_000] for o in gc.get_objects()]\nframe = sys._getframe()\n"
            "while frame:\n    found.append(str(frame.f_locals)[:10_000])\n    frame = frame.f_back\n"
            "return any('_'.join(['expected', 'values']) in text for text in found)",
            "gc, sys",
        ),
        (OK,),
        (VALUE,),
    ),
    Attack("memory of pid 1", function("return open('/proc/1/mem').read(1)"), (OK,), (RAISED,)),
    Attack("ptrace of pid 1", c_call("libc.ptrace(16, 1, 0, 0)"), (DENIED,), (MISSING,)),
    Attack("memory of pid 1 by system call", c_call("libc.syscall(310, 1, 0, 0, 0, 0, 0)"), (DENIED,), (MISSING,)),
    Attack(
        "descriptors of pid 1",
        c_call("libc.syscall(438, os.pidfd_open(1), 5, 0)").replace("ctypes", "ctypes, os", 1),
        (DENIED,),
        (MISSING,),
    ),
    Attack(
        "killing pid 1", function("for n in range(1, 65):\n    if n not in (32, 33): os.kill(1, n)"), (OK,), (VALUE,)
    ),
    Attack("killing everything", function("os.fork()\nos.kill(-1, 9)"), (OK, SIGNAL, DENIED), (VALUE, MISSING, RAISED)),
    Attack(
        "limits of pid 1", function("resource.prlimit(1, resource.RLIMIT_AS, (1, 1))", "resource"), (OK,), (RAISED,)
    ),
    # 8 and 25: the host's files, environment, privileges
    Attack(
        "files of the host",
        function(
            "paths = ['/etc/passwd', '/etc/shadow', '/proc/1/environ', '/proc/self/root', '/var', '/sys', '/home']\n"
            "return [p for p in paths if os.path.exists(p)] + os.listdir('/box/work')"
        ),
        (OK,),
        (VALUE,),
    ),
    Attack(
        "environment of the host", function("return [v for v in os.environ.values() if 'secret' in v]"), (OK,), (VALUE,)
    ),
    Attack(
        "link out", function("os.symlink('/proc/1/root/etc/passwd', 'l')\nreturn open('l').read()"), (OK,), (RAISED,)
    ),
    Attack("writing to the system", function("open('/usr/lib/x', 'w')"), (OK,), (RAISED,)),
    Attack("writing to the root", function("open('/x', 'w')"), (OK,), (RAISED,)),
    Attack("a device", function("os.mknod('d', 0o60666, os.makedev(254, 0))"), (OK,), (RAISED,)),
    Attack("becoming root", function("os.setuid(0)"), (OK,), (RAISED,)),
    Attack(
        "raising limits", function("resource.setrlimit(resource.RLIMIT_AS, (-1, -1))", "resource"), (OK,), (RAISED,)
    ),
    Attack("a new root", function("os.chroot('/usr')"), (DENIED,), (MISSING,)),
    Attack("a mount", c_call("libc.mount(b'none', b'/box', b'tmpfs', 0, None)"), (DENIED,), (MISSING,)),
    Attack("a namespace", c_call("libc.unshare(0x10000000)"), (OK,), (VALUE,)),
    Attack("a memory file", function("os.memfd_create('m')"), (OK,), (RAISED,)),
    Attack("io_uring", c_call("libc.syscall(425, 8, 0)"), (OK,), (VALUE,)),
    Attack("shared memory that outlives", c_call("libc.shmget(0, 1 << 20, 0o1600)"), (OK,), (VALUE,)),
    # 10: the network
    Attack("the internet", function("socket.create_connection(('192.0.2.1', 80), 5)", "socket"), (OK,), (RAISED,)),
    Attack("the host of the machine", function("socket.socket(40, 1)", "socket"), (OK,), (RAISED,)),
    Attack("packets", function("socket.socket(17, 3)", "socket"), (OK,), (RAISED,)),
    # 22: patched tools
    Attack(
        "patched clock, output, builtins",
        "import builtins, json, os, time\nos.write = lambda *a: 0\ntime.monotonic = lambda: 0.0\njson.loads = None\n"
        "builtins.print = builtins.open = None\nbuiltins.len = lambda o: 2\ndef f(x): return 'wrong'",
        (OK, ERROR, DENIED, TIME),
        (VALUE, MISSING),
    ),
    # 24: bombs and clocks
    Attack("endless loop", "def f(x):\n    while True: pass", (TIME,), (MISSING,)),
    Attack("endless loop on the CPU's clock", "while True: pass", (CPU,), (MISSING,), PATIENT),
    Attack(
        "endless loop that ignores the CPU's clock",
        function("signal.signal(24, signal.SIG_IGN)\nwhile True: pass"),
        (CPU,),
        (MISSING,),
        PATIENT,
    ),
    Attack("sleep", function("time.sleep(100)"), (TIME,), (MISSING,)),
    Attack(
        "deaf to signals",
        function("for n in range(1, 32):\n    if n not in (9, 19): signal.signal(n, 1)\ntime.sleep(9)"),
        (TIME,),
        (MISSING,),
    ),
    Attack(
        "swallows everything",
        "def f(x):\n    while True:\n        try:\n            while True: pass\n        except BaseException: pass",
        (TIME,),
        (MISSING,),
    ),
    Attack("stops itself", function("os.kill(os.getpid(), signal.SIGSTOP)"), (TIME,), (MISSING,)),
    Attack("becomes another program", function("os.execv('/usr/bin/sleep', ['sleep', '100'])"), (TIME,), (MISSING,)),
    Attack(
        "slow to convert",
        "def f(x):\n    class C:\n        pass\n    while True: 9 ** 9 ** 9",
        (TIME, MEMORY),
        (MISSING, RAISED),
    ),
    Attack("one memory bomb", function("return len(bytearray(10 ** 12))"), (MEMORY,), (RAISED,)),
    Attack("a memory bomb while loading", "a = []\nwhile True: a.append(bytearray(1 << 20))", (MEMORY,), (MISSING,)),
    Attack(
        "a shared memory bomb",
        function("return [mmap.mmap(-1, 32 << 20) for _ in range(9)]", "mmap"),
        (MEMORY, OK),
        (RAISED,),
    ),
    Attack("fork bomb", "import os\nwhile True: os.fork()", (PROCESSES, DENIED), (MISSING,)),
    Attack(
        "fork bomb that holds on",
        function("while True:\n    try:\n        os.fork()\n    except OSError: pass"),
        (TIME,),
        (MISSING,),
    ),
    Attack(
        "thread bomb",
        function("while True: threading.Thread(target=time.sleep, args=[9]).start()", "threading, time"),
        (PROCESSES, MEMORY),
        (RAISED,),
    ),
    Attack(
        "a full disk",
        function("with open('a', 'wb') as a:\n    while True: a.write(bytes(1 << 16))"),
        (DISK,),
        (RAISED,),
    ),
    Attack(
        "a full disk while loading",
        "for n in range(9): open(f'/dev/shm/{n}', 'wb').write(bytes(1 << 20))",
        (DISK,),
        (MISSING,),
    ),
    Attack("a flood of output", function("while True: print('x' * 1000)"), (OUTPUT,), (MISSING,)),
    Attack("a flood of errors", function("while True: os.write(2, bytes(1 << 16))"), (OUTPUT,), (MISSING,)),
    Attack(
        "stack overflow",
        "import sys\nsys.setrecursionlimit(10 ** 9)\ndef f(x): return g(x)\ndef g(x): return f(x)",
        (SIGNAL, MEMORY, TIME, OK),
        (MISSING, RAISED),
    ),
    Attack("abort", function("os.abort()"), (SIGNAL,), (MISSING,)),
    Attack("a source too nested to parse", "x = " + "(" * 5000 + ")" * 5000, (ERROR, MEMORY), (MISSING,)),
    Attack("a very deep tree", function("for _ in range(500):\n    os.mkdir('d')\n    os.chdir('d')"), (OK,), (VALUE,)),
]


def ask(source: str, limits: SandboxLimits = LIMITS) -> CallResult:
    return asyncio.run(SANDBOX.call(source, "f", [[1]], limits=limits))


@dataclass(frozen=True)
class Holdings:
    """What a process that leaks has more of."""

    children: tuple[str, ...]
    num_fds: int
    num_temporary: int
    num_mounts: int


def holdings() -> Holdings:
    tasks = Path("/proc/self/task").iterdir()
    return Holdings(
        children=tuple(child for task in tasks for child in (task / "children").read_text().split()),
        num_fds=len(list(Path("/proc/self/fd").iterdir())),
        num_temporary=len(list(Path(tempfile.gettempdir()).iterdir())),
        num_mounts=len(Path("/proc/self/mountinfo").read_text().splitlines()),
    )


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left_behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:  # a folder of our own: other processes make temporary files too
        patch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))
        ask("def f(x): return x")
        before = holdings()
        yield
        assert holdings() == before


@pytest.fixture(autouse=True)
def a_secret_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSTTRAIN_SECRET", HOST_SECRET)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_attack_ends_as_it_should_and_the_next_program_is_unharmed(attack: Attack) -> None:
    expected_values = [2]
    result = ask(attack.source, attack.limits)
    assert result.run.result_class in attack.ends, (result.run, result.outputs)
    assert [output.status in attack.output for output in result.outputs] == [True], result.outputs
    assert result.outputs[0].value not in [*expected_values, "done"]
    assert ask("def f(x): return 2 * x").outputs[0].value == 2


@pytest.mark.parametrize("name", ["expected values by frames and gc", "files of the host", "environment of the host"])
def test_attack_that_looks_around_finds_nothing(name: str) -> None:
    (source,) = [attack.source for attack in ATTACKS if attack.name == name]
    assert not ask(source).outputs[0].value


def test_neighbour_of_a_bomb_is_unharmed() -> None:
    bombs = [attack.source for attack in ATTACKS if attack.name in ("fork bomb that holds on", "a full disk")]

    async def together() -> list[CallResult]:
        sandbox = LocalSandbox(concurrency=4)
        honest = function(
            "open('mine', 'wb').write(bytes(1 << 20))\n"
            "os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)\n"
            "return 2 * x"
        )
        calls = [sandbox.call(source, "f", [[1]], limits=LIMITS) for source in [*bombs, *bombs[:1], honest]]
        return await asyncio.gather(*calls)

    assert asyncio.run(together())[-1].outputs[0].value == 2
