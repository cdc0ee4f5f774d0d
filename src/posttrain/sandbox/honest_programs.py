"""The honest programs of the conformance suite, as data: what each is asked and what must come of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from posttrain.core.sandboxing import OutputStatus, ResultClass, SandboxLimits
from posttrain.core.types import Json

LIMITS = SandboxLimits(wall_s=30.0, cpu_s=10.0)
_SHORT = SandboxLimits(wall_s=0.5)
_SMALL = SandboxLimits(wall_s=30.0, cpu_s=10.0, memory_mib=96, processes=6, output_kib=64, disk_mib=2)
_VALUE, _RAISED, _MISSING = OutputStatus.VALUE, OutputStatus.RAISED, OutputStatus.MISSING
_NOT_PLAIN = OutputStatus.NOT_PLAIN

VALUES: tuple[Json, ...] = (
    *(None, True, False, 0, 1, -1, 1 << 64, -(1 << 2000), 0.0, -0.0, 0.1, 1.0, 1e308, 5e-324),
    *("", "plain", "ünïcödé 漢字 🜚", "line\nline\r\n\t\0\x7f\u2028", "{}[]\"'\\"),
    *([], [1, [2.0, ["three"]]], {}, {"a": {"b": [None]}, "tuple": [1], "dict": {}, "": 0}, [True, 1, 1.0]),
)
"""Each must come back equal and of the same type."""

BURN = """
import time
def f(cpu_s, held_mib):
    held = bytearray(held_mib << 20)
    for page in range(0, len(held), 4096): held[page] = 1
    while time.process_time() < cpu_s + 0.05: pass
    start = time.process_time()
    while time.process_time() - start < cpu_s: pass
"""


@dataclass(frozen=True)
class HonestCall:
    name: str
    source: str
    """Defines `f`."""
    inputs: tuple[tuple[Json, ...], ...] = ((),)
    outputs: tuple[tuple[OutputStatus, Json], ...] = ((_VALUE, True),)
    ends: ResultClass = ResultClass.OK
    limits: SandboxLimits = LIMITS


@dataclass(frozen=True)
class HonestRun:
    name: str
    argv: tuple[str, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    stdin: str = ""
    stdout: str = ""
    stderr: str = ""
    """A part of what it must say there."""
    exit_code: int | None = 0
    ends: ResultClass = ResultClass.OK
    limits: SandboxLimits = LIMITS


def _python(name: str, source: str, stdout: str = "", exit_code: int | None = 0, stdin: str = "") -> HonestRun:
    ends = ResultClass.PROGRAM_ERROR if exit_code else ResultClass.OK
    return HonestRun(name, ("python3", "main.py"), {"main.py": source}, stdin, stdout, "", exit_code, ends)


def _ends(name: str, source: str, ends: ResultClass, limits: SandboxLimits = _SMALL) -> HonestCall:
    return HonestCall(name, source, outputs=((_MISSING, None),), ends=ends, limits=limits)


_LIBRARIES = "bisect collections csv dataclasses datetime decimal fractions functools hashlib heapq itertools json math"
_MORE_LIBRARIES = "operator random re statistics string struct textwrap typing unittest urllib.parse uuid zlib"
_IMPORTS = f"""
import importlib
def f():
    for name in "{_LIBRARIES} {_MORE_LIBRARIES}".split():
        importlib.import_module(name)
    return True
"""

CALLS = (
    HonestCall("several inputs in order", "def f(a, b): return a - b", ((5, 3), (3, 5)), ((_VALUE, 2), (_VALUE, -2))),
    HonestCall(
        "a state of its own between inputs",
        "n = []\ndef f(): n.append(1); return len(n)",
        ((), ()),
        ((_VALUE, 1), (_VALUE, 2)),
    ),
    HonestCall("a tuple stays a tuple", "def f(): return (1, [2], (3,))", outputs=((_VALUE, (1, [2], (3,))),)),
    HonestCall("bool and int stay apart", "def f(): return [True, 1]", outputs=((_VALUE, [True, 1]),)),
    HonestCall(
        "an exception is one input's affair",
        "def f(x): return 1 // x",
        ((0,), (1,)),
        ((_RAISED, None), (_VALUE, 1)),
    ),
    HonestCall("a set is not plain", "def f(): return {1}", outputs=((_NOT_PLAIN, None),)),
    HonestCall("an object is not plain", "def f(): return object()", outputs=((_NOT_PLAIN, None),)),
    HonestCall("a name that is missing", "x = 1", outputs=((_MISSING, None),), ends=ResultClass.PROGRAM_ERROR),
    HonestCall("libraries of the standard library", _IMPORTS),
    HonestCall("random numbers differ", "import random\ndef f(): return random.random() != random.random()"),
    HonestCall(
        "randomness of the system", "import os, secrets\ndef f(): return os.urandom(8) != secrets.token_bytes(8)"
    ),
    HonestCall(
        "a clock that goes on",
        "import time\n"
        "def f():\n"
        "    a = time.monotonic()\n"
        "    time.sleep(0.01)\n"
        "    return time.monotonic() - a >= 0.01 and time.time() > 1.6e9",
    ),
    HonestCall(
        "threads within the limit",
        "import threading\n"
        "def f():\n"
        "    n = []\n"
        "    ts = [threading.Thread(target=n.append, args=[1]) for _ in range(3)]\n"
        "    [t.start() for t in ts]; [t.join() for t in ts]\n"
        "    return len(n) == 3",
        limits=_SMALL,
    ),
    HonestCall(
        "processes within the limit",
        "import subprocess\ndef f(): return subprocess.run(['echo', 'hi'], capture_output=True).stdout == b'hi\\n'",
        limits=_SMALL,
    ),
    HonestCall(
        "temporary files",
        "import tempfile\n"
        "def f():\n"
        "    with tempfile.NamedTemporaryFile('w+') as t:\n"
        "        t.write('x'); t.seek(0)\n"
        "        return t.read() == 'x'",
    ),
    HonestCall(
        "a dataclass and its module",
        "from dataclasses import dataclass\n"
        "@dataclass\n"
        "class P:\n"
        "    x: int\n"
        "def f(): return P(1) == P(1) and P.__module__ in __import__('sys').modules",
    ),
    HonestCall("recursion as deep as usual", "def g(n): return n and 1 + g(n - 1)\ndef f(): return g(900) == 900"),
    HonestCall("memory below the limit", "def f(): return len(bytearray(48 << 20)) > 0", limits=_SMALL),
    HonestCall("disk below the limit", "def f(): return open('a', 'wb').write(bytes(1_500_000)) > 0", limits=_SMALL),
    HonestCall("output below the limit", "def f():\n    print('x' * 60_000)\n    return True", limits=_SMALL),
    _ends("ends at the time limit", "def f():\n    while True: pass", ResultClass.TIME_LIMIT, _SHORT),
    _ends("ends at the output limit", "def f():\n    while True: print('x' * 999)", ResultClass.OUTPUT_LIMIT),
    _ends("ends by a signal", "import os\ndef f(): os.abort()", ResultClass.SIGNAL),
    _ends("ends with an error", "import sys\ndef f(): sys.exit(3)", ResultClass.PROGRAM_ERROR),
    _ends("ends early and well", "import sys\ndef f(): sys.exit(0)", ResultClass.OK),
    HonestCall(
        "ends at the memory limit",
        "def f(): return len(bytearray(1 << 40))",
        outputs=((_RAISED, None),),
        ends=ResultClass.MEMORY_LIMIT,
        limits=_SMALL,
    ),
    HonestCall(
        "ends at the disk limit",
        "def f():\n    with open('a', 'wb', 0) as a:\n        for _ in range(99): a.write(bytes(1 << 18))",
        outputs=((_RAISED, None),),
        ends=ResultClass.DISK_LIMIT,
        limits=_SMALL,
    ),
)

RUNS = (
    _python("standard input and output", "print(input()[::-1])", "cba\n", stdin="abc\n"),
    _python("input without an end of line", "import sys\nprint(len(sys.stdin.read()))", "5\n", stdin="äöüab"),
    _python("no input is an end of file", "import sys\nprint(repr(sys.stdin.read()))", "''\n"),
    _python("input larger than a pipe", "import sys\nprint(len(sys.stdin.read()))", "300000\n", stdin="x" * 300_000),
    _python("unicode out", "print('ünïcödé 漢字 🜚')", "ünïcödé 漢字 🜚\n"),
    _python("an exit code", "raise SystemExit(7)", exit_code=7),
    _python(
        "an import of a file beside", "import os\nprint(os.path.basename(__file__), __name__)", "main.py __main__\n"
    ),
    HonestRun(
        "arguments", ("python3", "-c", "import sys; print(sys.argv[1:])", "a b", "", "ü"), stdout="['a b', '', 'ü']\n"
    ),
    HonestRun(
        "files in folders", ("cat", "a/b/c.txt", "d"), {"a/b/c.txt": "one\n", "d": "two\r\n"}, stdout="one\ntwo\r\n"
    ),
    HonestRun("standard error", ("sh", "-c", "echo wrong >&2"), stderr="wrong"),
    HonestRun("a shell", ("sh", "-c", "x=$(echo 6); echo $((x * 7))"), stdout="42\n"),
    HonestRun(
        "a traceback",
        ("python3", "-c", "1 / 0"),
        stderr="ZeroDivisionError",
        exit_code=1,
        ends=ResultClass.PROGRAM_ERROR,
    ),
    HonestRun(
        "a module that was laid",
        ("python3", "-c", "import sys; sys.path.insert(0, '.'); import mine; print(mine.x)"),
        {"mine.py": "x = 5"},
        stdout="5\n",
    ),
)
