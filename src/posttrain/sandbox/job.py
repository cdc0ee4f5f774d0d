"""What the host hands to our own code inside: jobs, settings, and the code itself, compiled once.

All of it goes one way, from us to our own code, which is why it may be marshal; nothing that comes back ever
is. A job holds the candidate's source, never an expected value.
"""

from __future__ import annotations

import fcntl
import functools
import importlib.util
import marshal
import math
import os
from collections.abc import Mapping
from pathlib import Path
from types import CodeType
from typing import Any, TypedDict

from posttrain.core.sandboxing import SandboxLimits
from posttrain.sandbox.inside.program import OPEN_FILES
from posttrain.sandbox.order import MIB, Order

BOOTSTRAP = """\
import marshal, sys
with open(int(sys.argv[1]), "rb") as file:
    modules, settings = marshal.load(file)
for name, code in modules:
    module = sys.modules[name] = type(sys)(name)
    exec(code, module.__dict__)
module.start(settings)
"""
SOURCE_BOOTSTRAP = """\
import marshal, os, sys
sys.path = [path for path in sys.path if path]
def receive(size):
    data = b""
    while len(data) < size:
        piece = os.read(0, size - len(data))
        if not piece:
            sys.exit("the sandbox's own code did not arrive")
        data += piece
    return data
modules, settings = marshal.loads(receive(int.from_bytes(receive(4), "big")))
for name, source in modules:
    module = sys.modules[name] = type(sys)(name)
    exec(compile(source, f"<{name}>", "exec", dont_inherit=True, optimize=2), module.__dict__)
module.start(settings)
"""
"""For an interpreter of another version than ours, which gets the code as text on its standard input."""

_INSIDE = "posttrain.sandbox.inside"
_SINGLE = ("posttrain.sandbox.plain", f"{_INSIDE}.program", f"{_INSIDE}.warden", f"{_INSIDE}.single")
_SERVER = (
    *_SINGLE[:3],
    *(f"{_INSIDE}.{name}" for name in ("kernel", "lockdown", "box", "files", "testing")),
    *(f"{_INSIDE}.{name}" for name in ("census", "cells", "interpreter", "server")),
)
_REDUCED = (
    *_SINGLE[:3],
    *(f"{_INSIDE}.{name}" for name in ("kernel", "lockdown", "box", "descendants", "headcount", "folder")),
    *(f"{_INSIDE}.{name}" for name in ("census", "cells", "interpreter", "server", "reduced")),
)
_CONTAINED = (*_SINGLE[:3], *(f"{_INSIDE}.{name}" for name in ("kernel", "lockdown", "contained")))
_OLD_MARSHAL = 4
"""Python 3.4 and all since read it; plain data has had the same form ever since."""


class Job(TypedDict):
    """One program's. These are dictionaries because they cross by marshal."""

    argv: list[str]
    """Empty: call `function` of `source` instead."""
    source: str
    function: str
    files: dict[str, str]
    verb: list[Any]
    """Instead of all that: what a session has our own code do, with its arguments."""
    cpu_s: int
    rlimits: dict[str, int]


class Single(TypedDict):
    """For pid 1 of one execution. Numbers of file descriptors are those inside."""

    uid: int
    """For root to become before anything else."""
    control: int
    report: int
    input: int
    answer: int


class Contained(TypedDict):
    """For pid 1 of a container."""

    stdin: str
    """What the program is to read there."""


class Server(TypedDict):
    """For the server of a slot."""

    control: int
    filter: bytes
    preload: list[str]
    paths: list[str]


class Reduced(TypedDict):
    """For the outer process of a slot in reduced isolation, which starts the server."""

    server: Server
    info: int
    folder: str
    """To be made."""
    readable: list[str]
    """Paths that are there, and where programs may read."""
    links: dict[str, str]
    """Paths of what they may import, by name; they are readable too."""


def job_frame(order: Order, *, base_bytes: int = 0, num_ours: int | None = 1) -> bytes:
    """`base_bytes`: address space that a call has before it begins, and that is not its own doing; `num_ours`: how many
    processes of ours have the same user; None where its processes are not counted by user."""
    job = Job(
        argv=list(order.argv),
        source=order.source,
        function=order.function,
        files=dict(order.files),
        verb=list(order.verb),
        cpu_s=whole_cpu_s(order.limits),
        rlimits=_rlimits(order.limits, 0 if order.argv else base_bytes, num_ours),
    )
    return _framed(marshal.dumps(dict(job)))


def single_file(single: Single) -> int:
    """The code with its settings, as the descriptor of a sealed memory file."""
    return _code_file(_SINGLE, single)


def server_file(server: Server) -> int:
    return _code_file(_SERVER, server)


def reduced_file(reduced: Reduced) -> int:
    return _code_file(_REDUCED, reduced)


def contained_frame(contained: Contained) -> bytes:
    """What `SOURCE_BOOTSTRAP` reads."""
    modules = [(name, _source(name)) for name in _CONTAINED]
    return _framed(marshal.dumps((modules, dict(contained)), _OLD_MARSHAL))


def _framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def _rlimits(limits: SandboxLimits, base_bytes: int, num_ours: int | None) -> dict[str, int]:
    """By the names of the `resource` module."""
    by_user = {} if num_ours is None else {"RLIMIT_NPROC": limits.processes + num_ours}
    return by_user | {
        "RLIMIT_AS": limits.memory_mib * MIB + base_bytes,
        "RLIMIT_FSIZE": limits.disk_mib * MIB,
        "RLIMIT_NOFILE": OPEN_FILES,
        "RLIMIT_CORE": 0,
        "RLIMIT_MEMLOCK": 0,
        "RLIMIT_MSGQUEUE": 0,
    }


def whole_cpu_s(limits: SandboxLimits) -> int:
    """RLIMIT_CPU counts whole seconds: rounded up, at least 1."""
    return max(1, math.ceil(limits.cpu_s))


def sealed_file(name: str, content: bytes) -> int:
    """A memory file that nobody can change or grow any more, rewound. The caller closes the descriptor."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with os.fdopen(os.dup(fd), "wb") as file:
            file.write(content)
    except OSError:
        os.close(fd)
        raise
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _code_file(names: tuple[str, ...], settings: Mapping[str, Any]) -> int:
    return sealed_file("posttrain-code", marshal.dumps(([(name, _compiled(name)) for name in names], dict(settings))))


@functools.cache
def _compiled(name: str) -> CodeType:
    """Here, so that no execution compiles it again."""
    return compile(_source(name), f"<{name}>", "exec", dont_inherit=True, optimize=2)


@functools.cache
def _source(name: str) -> str:
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).read_text(encoding="utf-8")
