"""A sandbox elsewhere: what is asked goes to a server (`posttrain sandbox serve`), and its answers come back.

What goes wrong on the way is never the program's doing (law L23): it is tried again a few times, and in the end
reported as INFRASTRUCTURE_ERROR. Trying again may run a program twice, which nothing outside a sandbox can tell; a
session could, and there nothing is done twice (`remote_session.py`). The server sends a sign of life while an execution
waits or runs, so a silence is a fault; how long one waits for its turn is not bounded. The token travels as it is: use
https where others can listen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TypeVar

import httpx2

from posttrain.core.errors import ConfigError, SandboxError
from posttrain.core.sandbox_status import SandboxFigures, SandboxStatus
from posttrain.core.sandboxing import (
    SANDBOX_CALLER,
    SESSION_LIMITS,
    CallOutput,
    CallResult,
    IsolationTier,
    OutputStatus,
    ResultClass,
    RunResult,
    SandboxLimits,
    TestOutcome,
    TestResult,
)
from posttrain.core.types import Json
from posttrain.sandbox.link import Link, ServerFault
from posttrain.sandbox.metrics import SandboxRecord
from posttrain.sandbox.order import call_order, run_order
from posttrain.sandbox.outcome import too_many_files
from posttrain.sandbox.remote_session import RemoteSession
from posttrain.sandbox.wire import (
    CALL,
    RUN,
    TEST,
    CallRequest,
    RunRequest,
    TestRequest,
    max_answer_bytes,
    max_test_answer_bytes,
    read_call_result,
    read_run_result,
    read_test_result,
    write_call,
    write_run,
    write_test,
)
from posttrain.sandbox.wire_session import MAX_SHORT_ANSWER_BYTES, OPEN, OpenRequest, read_opened, write_open

T = TypeVar("T")


@dataclass(frozen=True)
class RemoteSandbox:
    """Cheap to make; the server is asked at the first use or question for the `tier`. `close` it in the event loop that
    used it."""

    url: str
    """Such as https://sandbox.example:8900."""
    token_file: Path
    """The same as the server's."""
    concurrency: int = 64
    """Executions at once in one event loop, those in sessions not counted. Who of them goes first is the server's
    affair, by name and priority."""
    silence_s: float = 30.0
    """Without a byte from the server for so long, it is taken for dead."""
    _record: SandboxRecord = field(default_factory=SandboxRecord, init=False, repr=False, compare=False)
    _sessions: SandboxRecord = field(default_factory=SandboxRecord, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise ConfigError(f"concurrency of the sandbox 'remote' is {self.concurrency}; it must be at least 1")
        if not self.silence_s > 0:
            raise ConfigError(f"silence_s of the sandbox 'remote' is {self.silence_s}; it must be more than 0")
        try:
            url = httpx2.URL(self.url)
        except httpx2.InvalidURL as error:
            raise ConfigError(f"url of the sandbox 'remote' is {self.url!r}: {error}") from None
        if url.scheme not in ("http", "https") or not url.host:
            raise ConfigError(f"url of the sandbox 'remote' is {self.url!r}; it must be like https://host:8900")

    @cached_property
    def tier(self) -> IsolationTier:
        """The server's. Blocks until it answers. Raises `SandboxError` where it does not, and `ConfigError` for a token
        that is not the server's."""
        return self.status().tier

    async def call(
        self,
        source: str,
        function: str,
        inputs: Sequence[Sequence[Json]],
        *,
        limits: SandboxLimits,
        profile: str = "python",
    ) -> CallResult:
        """As the protocol says, and as `LocalSandbox` does."""
        call_order(source, function, inputs, limits)
        body = write_call(CallRequest(source, function, inputs, limits, profile, SANDBOX_CALLER.get()))
        num_inputs = len(inputs)
        max_bytes = max_answer_bytes(num_inputs, limits)
        try:
            result = await self._execute(CALL, body, max_bytes, partial(read_call_result, num_inputs=num_inputs))
        except ServerFault as fault:
            missing = CallOutput(OutputStatus.MISSING, error=str(fault))
            result = CallResult(self._fault(fault), (missing,) * num_inputs)
        self._note(result.run)
        return result

    async def run(
        self,
        argv: Sequence[str],
        *,
        files: Mapping[str, str] | None = None,
        stdin: str = "",
        limits: SandboxLimits,
    ) -> RunResult:
        """As the protocol says, and as `LocalSandbox` does."""
        order = run_order(argv, files, stdin, limits)
        if not order.fits:
            return too_many_files(await asyncio.to_thread(lambda: self.tier), limits)
        body = write_run(RunRequest(order.argv, order.files, stdin, limits, SANDBOX_CALLER.get()))
        try:
            run = await self._execute(RUN, body, max_answer_bytes(0, limits), read_run_result)
        except ServerFault as fault:
            run = self._fault(fault)
        self._note(run)
        return run

    async def test(
        self, tree: Mapping[str, str], tests: Mapping[str, str], expected: Sequence[str], *, limits: SandboxLimits
    ) -> TestResult:
        """As the protocol says, and as `LocalSandbox` does."""
        run_order(("-",), tree, "", limits)
        body = write_test(TestRequest(tree, tests, expected, limits, SANDBOX_CALLER.get()))
        try:
            result = await self._execute(TEST, body, max_test_answer_bytes(body, limits), read_test_result)
        except ServerFault as fault:
            result = TestResult(self._fault(fault), dict.fromkeys(expected, TestOutcome.MISSING))
        self._note(result.run)
        return result

    async def session(
        self, tree: Mapping[str, str], *, limits: SandboxLimits = SESSION_LIMITS, background: bool = False
    ) -> RemoteSession:
        """As `LocalSandbox` does. It waits while the server has as many sessions as it takes. Raises `SandboxError`
        where the server does not answer."""
        run_order(("-",), tree, "", limits)
        body = write_open(OpenRequest(tree, limits, background, SANDBOX_CALLER.get()))
        try:
            opened = await self._link.ask(OPEN, body, MAX_SHORT_ANSWER_BYTES, read_opened)
        except ServerFault as fault:
            raise SandboxError(f"a session could not begin: {fault}") from None
        return RemoteSession(self._link, opened, limits)

    def figures(self) -> SandboxFigures:
        """What was asked for from here; the server's own are in its `status`."""
        return self._record.figures(self._sessions)

    def status(self) -> SandboxStatus:
        """The server's. Blocks until it answers. Raises as `tier` does."""
        return self._link.status()

    async def close(self) -> None:
        """Closes the sessions of this event loop, too."""
        await self._link.close()

    async def _execute(self, path: str, body: bytes, max_bytes: int, read: Callable[[bytes], T]) -> T:
        async with self._link.turn():
            return await self._link.ask(path, body, max_bytes, read, self._record.retried)

    @cached_property
    def _link(self) -> Link:
        return Link(self.url, self.token_file, self.concurrency, self.silence_s, self._record, self._sessions)

    def _note(self, run: RunResult) -> None:
        self._record.ended(run.result_class)
        if run.result_class is not ResultClass.INFRASTRUCTURE_ERROR:
            self.__dict__.setdefault("tier", run.tier)  # so that nobody has to ask for it

    def _fault(self, fault: ServerFault) -> RunResult:
        """Nothing is known of the isolation of a server that never answered; it is then called the least."""
        tier: IsolationTier = self.__dict__.get("tier", IsolationTier.REDUCED)
        return RunResult(ResultClass.INFRASTRUCTURE_ERROR, tier, reason=str(fault))
