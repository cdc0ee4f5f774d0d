"""The order that the host hands to the first process of a sandbox: read once from a sealed memory file.

It goes one way, from us to our own code in the same interpreter, which is why it may be marshal; nothing that comes
back ever is. It holds the candidate's source, never an expected value.
"""

from __future__ import annotations

import fcntl
import functools
import importlib.util
import marshal
import math
import os
from pathlib import Path
from types import CodeType
from typing import TypedDict

from posttrain.core.sandboxing import SandboxLimits
from posttrain.sandbox.guest import OPEN_FILES

MIB = 1 << 20

BOOTSTRAP = """\
import marshal, sys
with open(int(sys.argv[1]), "rb") as file:
    modules, job = marshal.load(file)
for name, code in modules:
    module = sys.modules[name] = type(sys)(name)
    exec(code, module.__dict__)
module.start(job)
"""


class Job(TypedDict):
    """A dictionary, because it crosses by marshal. Numbers of file descriptors are those inside."""

    uid: int
    """To become before anything else; 0 where the launcher is an ordinary user already."""
    argv: list[str]
    """Empty: call `function` of `source` instead."""
    source: str
    function: str
    files: dict[str, str]
    cpu_s: int
    rlimits: dict[str, int]
    control: int
    report: int
    input: int
    answer: int


def rlimits(limits: SandboxLimits) -> dict[str, int]:
    """By the names of the `resource` module. One more process than asked for: pid 1 has the same user."""
    return {
        "RLIMIT_AS": limits.memory_mib * MIB,
        "RLIMIT_NPROC": limits.processes + 1,
        "RLIMIT_FSIZE": limits.disk_mib * MIB,
        "RLIMIT_NOFILE": OPEN_FILES,
        "RLIMIT_CORE": 0,
        "RLIMIT_MEMLOCK": 0,
        "RLIMIT_MSGQUEUE": 0,
    }


def whole_cpu_s(limits: SandboxLimits) -> int:
    """RLIMIT_CPU counts whole seconds: rounded up, at least 1."""
    return max(1, math.ceil(limits.cpu_s))


def job_file(job: Job) -> int:
    """The order with the code that carries it out, as the descriptor of a sealed memory file."""
    return sealed_file("posttrain-job", marshal.dumps((_modules(), dict(job))))


def sealed_file(name: str, content: bytes) -> int:
    """A memory file that nobody can change or grow any more, rewound. The caller closes the descriptor."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with os.fdopen(os.dup(fd), "wb") as file:
        file.write(content)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


@functools.cache
def _modules() -> list[tuple[str, CodeType]]:
    """Compiled here once, so that no execution compiles them again."""
    names = ("posttrain.sandbox.plain", "posttrain.sandbox.guest")
    return [(name, _compiled(name)) for name in names]


def _compiled(name: str) -> CodeType:
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).read_text(encoding="utf-8")
    return compile(source, f"<{name}>", "exec", dont_inherit=True, optimize=2)
