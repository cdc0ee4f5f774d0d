"""The sandbox that builds its walls anew for every execution: slower, and with less between it and bubblewrap.

Every result carries the tier that `probe.py` found by trying; where there is none, the first use raises
`IsolationUnavailableError` and nothing ever runs with less (law L27). A fault of ours is tried once more and then
reported as INFRASTRUCTURE_ERROR, never as the program's (law L23). It bounds memory and inodes of each process only,
not their sum, and has neither `test` nor sessions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NoReturn
from weakref import WeakKeyDictionary

from posttrain.core.errors import ConfigError, SandboxError
from posttrain.core.protocols import SandboxSession
from posttrain.core.sandboxing import (
    SESSION_LIMITS,
    CallResult,
    IsolationTier,
    ResultClass,
    RunResult,
    SandboxLimits,
    TestResult,
)
from posttrain.core.types import Json
from posttrain.sandbox.conversation import Conversation
from posttrain.sandbox.execution import execute
from posttrain.sandbox.order import Order, call_order, run_order
from posttrain.sandbox.outcome import judge, too_many_files
from posttrain.sandbox.probe import single_host

_ATTEMPTS = 2


@dataclass(frozen=True)
class BubblewrapSandbox:
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
            raise ConfigError(f"concurrency of the sandbox 'bubblewrap' is {self.concurrency}; it must be at least 1")

    @property
    def tier(self) -> IsolationTier:
        """Raises `IsolationUnavailableError`."""
        return single_host().tier

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
        if profile != "python":
            raise SandboxError(f"the sandbox 'bubblewrap' has no profile {profile!r}; it has 'python'")
        order = call_order(source, function, inputs, limits)
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
        order = run_order(argv, files, stdin, limits)
        if not order.fits:
            return too_many_files(self.tier, limits)
        async with self._slot():
            run = await self._execute(order)
            if run.result_class is ResultClass.INFRASTRUCTURE_ERROR:
                run = await self._execute(order)
        return run

    async def test(
        self, tree: Mapping[str, str], tests: Mapping[str, str], expected: Sequence[str], *, limits: SandboxLimits
    ) -> TestResult:
        _refuse("test")

    async def session(
        self, tree: Mapping[str, str], *, limits: SandboxLimits = SESSION_LIMITS, background: bool = False
    ) -> SandboxSession:
        _refuse("session")

    async def close(self) -> None:
        """Nothing stays between executions, so there is nothing to close."""

    async def _execute(self, order: Order, conversation: Conversation | None = None) -> RunResult:
        host = single_host()
        try:
            ended = await execute(host, order, conversation)
        except (OSError, SandboxError) as error:  # the host has no descriptors, memory or processes left for us
            return RunResult(ResultClass.INFRASTRUCTURE_ERROR, host.tier, reason=f"sandbox could not run: {error}")
        return judge(ended, host.tier, order.limits, conversation)

    def _slot(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        return self._slots.setdefault(loop, asyncio.Semaphore(self.concurrency))


def _refuse(verb: str) -> NoReturn:
    raise SandboxError(f"the sandbox 'bubblewrap' has no verb {verb!r}; it has call and run")
