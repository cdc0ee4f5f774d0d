"""Sandboxes that build their walls anew for every execution: slower, and with nothing that stays in between.

`BubblewrapSandbox` is the one of this machine; `container.py` has the other. Every result carries the tier that was
found by trying; where there is none, the first use raises `IsolationUnavailableError` and nothing ever runs with less
(law L27). A fault of ours is tried once more and then reported as INFRASTRUCTURE_ERROR, never as the program's (law
L23). They have neither `test` nor sessions.
"""

from __future__ import annotations

import abc
import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Literal, NoReturn
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
from posttrain.sandbox.watch import Ended

_ATTEMPTS = 2

Execute = Callable[[Order, Conversation | None], Awaitable[Ended]]
"""Raises `OSError` and `SandboxError` for what is no doing of the program."""


@dataclass(frozen=True)
class PerExecutionSandbox(abc.ABC):
    """Cheap to make; what it needs is tried at the first use or question for the `tier`, once per process."""

    NAME: ClassVar[str]

    concurrency: int = 2
    """Executions at once in one event loop; more wait, and their waiting is not charged to them."""
    _slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = field(
        default_factory=WeakKeyDictionary, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise ConfigError(f"concurrency of the sandbox {self.NAME!r} is {self.concurrency}; it must be at least 1")

    @abc.abstractmethod
    def _found(self) -> tuple[IsolationTier, Execute]:
        """Blocks the first time. Raises `IsolationUnavailableError`."""

    async def _find(self) -> tuple[IsolationTier, Execute]:
        """The same; for a sandbox that takes long over it to give the event loop free."""
        return self._found()

    @property
    def tier(self) -> IsolationTier:
        """Raises `IsolationUnavailableError`."""
        return self._found()[0]

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
            raise SandboxError(f"the sandbox {self.NAME!r} has no profile {profile!r}; it has 'python'")
        order = call_order(source, function, inputs, limits)
        run, conversation = await self._execute(order, lambda: Conversation(inputs))
        assert conversation is not None
        return CallResult(run, conversation.outputs())

    async def run(
        self,
        argv: Sequence[str],
        *,
        files: Mapping[str, str] | None = None,
        stdin: str = "",
        limits: SandboxLimits,
    ) -> RunResult:
        """`argv[0]` is looked up where the sandbox has programs. `files` are laid in the working directory; more than
        `disk_mib` of them is a DISK_LIMIT. Raises `UserError` for a path that leaves the working directory (attack
        25)."""
        order = run_order(argv, files, stdin, limits)
        if not order.fits:
            tier, _ = await self._find()
            return too_many_files(tier, limits)
        run, _ = await self._execute(order, lambda: None)
        return run

    async def test(
        self, tree: Mapping[str, str], tests: Mapping[str, str], expected: Sequence[str], *, limits: SandboxLimits
    ) -> TestResult:
        self._refuse("test")

    async def session(
        self, tree: Mapping[str, str], *, limits: SandboxLimits = SESSION_LIMITS, background: bool = False
    ) -> SandboxSession:
        self._refuse("session")

    async def close(self) -> None:  # noqa: B027
        """Nothing stays between executions, so there is nothing to close."""

    async def _execute(
        self, order: Order, converse: Callable[[], Conversation | None]
    ) -> tuple[RunResult, Conversation | None]:
        async with self._slot():
            for attempt in range(_ATTEMPTS):
                conversation = converse()
                run = await self._attempt(order, conversation)
                if run.result_class is not ResultClass.INFRASTRUCTURE_ERROR or attempt == _ATTEMPTS - 1:
                    break
        return run, conversation

    async def _attempt(self, order: Order, conversation: Conversation | None) -> RunResult:
        tier, execute = await self._find()
        try:
            ended = await execute(order, conversation)
        except (OSError, SandboxError) as error:  # the host has no descriptors, memory or processes left for us
            return RunResult(ResultClass.INFRASTRUCTURE_ERROR, tier, reason=f"sandbox could not run: {error}")
        return judge(ended, tier, order.limits, conversation)

    def _slot(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        return self._slots.setdefault(loop, asyncio.Semaphore(self.concurrency))

    def _refuse(self, verb: str) -> NoReturn:
        raise SandboxError(f"the sandbox {self.NAME!r} has no verb {verb!r}; it has call and run")


@dataclass(frozen=True)
class BubblewrapSandbox(PerExecutionSandbox):
    """Walls of bubblewrap (`bubblewrap.py`). It bounds memory and inodes of each process only, not their sum.
    Programs are looked up in the base interpreter's folder and /usr/bin."""

    NAME: ClassVar[str] = "bubblewrap"

    isolation: Literal["full"] = "full"
    """What is required; "full" is all there is."""

    def _found(self) -> tuple[IsolationTier, Execute]:
        host = single_host()
        return host.tier, partial(execute, host)
