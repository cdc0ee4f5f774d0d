"""The sandbox of this machine: bubblewrap, started anew for every execution.

Every result carries the tier that `probe.py` found by trying; where there is none, the first use raises
`IsolationUnavailableError` and nothing ever runs with less (law L27). A fault of ours is tried once more and then
reported as INFRASTRUCTURE_ERROR, never as the program's (law L23). It does not keep processes warm between
executions, and has neither `test` nor sessions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Literal, NoReturn
from weakref import WeakKeyDictionary

from posttrain.core.errors import ConfigError, SandboxError, UserError
from posttrain.core.protocols import SandboxSession
from posttrain.core.sandboxing import CallResult, IsolationTier, ResultClass, RunResult, SandboxLimits, TestResult
from posttrain.core.types import Json
from posttrain.sandbox.conversation import Conversation
from posttrain.sandbox.execution import Order, execute
from posttrain.sandbox.job import MIB
from posttrain.sandbox.outcome import judge
from posttrain.sandbox.probe import available

_ATTEMPTS = 2
_PAGE_BYTES = 4096
_MAX_PATH, _MAX_PATH_PART = 1000, 60
"""Characters, of at most 4 bytes each: below the kernel's 4096 and 255."""
_PROFILES = ("python",)


@dataclass(frozen=True)
class LocalSandbox:
    """Cheap to make; the machine is probed at the first use or question for the `tier`, once per process."""

    concurrency: int = 2
    """Executions at once in one event loop; more wait, and their waiting is not charged to them."""
    isolation: Literal["full"] = "full"
    """What is required; "full" is all there is."""
    _slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = field(
        default_factory=WeakKeyDictionary, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise ConfigError(f"concurrency of the sandbox 'local' is {self.concurrency}; it must be at least 1")

    @property
    def tier(self) -> IsolationTier:
        """Raises `IsolationUnavailableError`."""
        return available().tier

    async def call(
        self,
        source: str,
        function: str,
        inputs: Sequence[Sequence[Json]],
        *,
        limits: SandboxLimits,
        profile: str = "python",
    ) -> CallResult:
        """As the protocol says. Tuples stay tuples in both directions. Raises `UserError` for no inputs (law L26)
        and for inputs that are no plain data."""
        if profile not in _PROFILES:
            raise SandboxError(f"the sandbox 'local' has no profile {profile!r} (known: {', '.join(_PROFILES)})")
        if not inputs:
            raise UserError(f"a sandboxed call of {function!r} has no inputs: it would say nothing about the program")
        order = Order(limits=limits, source=source, function=function)
        async with self._slot():
            for attempt in range(_ATTEMPTS):
                conversation = Conversation(inputs)
                run = await self._execute(order, conversation)
                if run.result_class is not ResultClass.INFRASTRUCTURE_ERROR or attempt == _ATTEMPTS - 1:
                    break
        return CallResult(run, conversation.outputs())

    async def run(
        self,
        argv: Sequence[str],
        *,
        files: Mapping[str, str] | None = None,
        stdin: str = "",
        limits: SandboxLimits,
    ) -> RunResult:
        """`argv[0]` is looked up where the sandbox has programs: the base interpreter's folder and /usr/bin. `files`
        are laid in the working directory; more than `disk_mib` of them is a DISK_LIMIT. Raises `UserError` for a
        path that leaves the working directory (attack 25)."""
        if not argv:
            raise UserError("a sandboxed run needs a program: argv is empty")
        files = {str(PurePosixPath(name)): content for name, content in (files or {}).items()}
        _check_paths(files)
        if _laid_bytes(files) > limits.disk_mib * MIB:
            reason = f"the files to lay are larger than the {limits.disk_mib} MiB of disk"
            return RunResult(ResultClass.DISK_LIMIT, self.tier, reason=reason)
        order = Order(limits=limits, argv=tuple(argv), files=files, stdin=stdin)
        async with self._slot():
            run = await self._execute(order)
            if run.result_class is ResultClass.INFRASTRUCTURE_ERROR:
                run = await self._execute(order)
        return run

    async def test(
        self, tree: Mapping[str, str], tests: Mapping[str, str], expected: Sequence[str], *, limits: SandboxLimits
    ) -> TestResult:
        _refuse("test")

    async def session(self, tree: Mapping[str, str]) -> SandboxSession:
        _refuse("session")

    async def close(self) -> None:
        """Nothing stays between executions, so there is nothing to close."""

    async def _execute(self, order: Order, conversation: Conversation | None = None) -> RunResult:
        host = available()
        ended = await execute(host, order, conversation)
        return judge(ended, host.tier, order.limits, conversation)

    def _slot(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        return self._slots.setdefault(loop, asyncio.Semaphore(self.concurrency))


def _refuse(verb: str) -> NoReturn:
    raise SandboxError(f"the sandbox 'local' has no verb {verb!r}; it has call and run")


def _check_paths(files: Mapping[str, str]) -> None:
    for name, content in files.items():
        path = PurePosixPath(name)
        fits = len(name) <= _MAX_PATH and all(len(part) <= _MAX_PATH_PART for part in path.parts)
        if not path.parts or path.is_absolute() or ".." in path.parts or "\0" in name or not fits:
            raise UserError(f"a file for the sandbox cannot be called {name[:200]!r}: the path must stay inside")
        if any(str(parent) in files for parent in path.parents):
            raise UserError(f"a file for the sandbox cannot be called {name[:200]!r}: a part of it is a file itself")
        try:
            (name + content).encode()
        except UnicodeEncodeError:
            raise UserError(f"the file {name[:200]!r} for the sandbox is no valid Unicode") from None


def _laid_bytes(files: Mapping[str, str]) -> int:
    """Upper bound of what files take in a tmpfs: whole pages, and one for each folder."""
    pages = sum(1 + len(PurePosixPath(name).parts) + len(text.encode()) // _PAGE_BYTES for name, text in files.items())
    return pages * _PAGE_BYTES
