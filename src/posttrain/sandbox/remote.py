"""A sandbox elsewhere: what is asked goes to a server (`posttrain sandbox serve`), and its answers come back.

What goes wrong on the way is never the program's doing (law L23): it is tried again a few times, and in the end
reported as INFRASTRUCTURE_ERROR. Trying again may run a program twice, which nothing outside a sandbox can tell. The
server sends a sign of life while an execution waits or runs, so a silence is a fault; how long one waits for its turn
is not bounded. The token travels as it is: use https where others can listen.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NoReturn, TypeVar
from weakref import WeakKeyDictionary

import httpx2

from posttrain.core.errors import ConfigError, SandboxError, UserError
from posttrain.core.protocols import SandboxSession
from posttrain.core.sandbox_status import SandboxFigures, SandboxStatus
from posttrain.core.sandboxing import (
    SANDBOX_CALLER,
    CallOutput,
    CallResult,
    IsolationTier,
    OutputStatus,
    ResultClass,
    RunResult,
    SandboxCaller,
    SandboxLimits,
    TestResult,
)
from posttrain.core.types import Json
from posttrain.sandbox.decode import MalformedError
from posttrain.sandbox.metrics import SandboxRecord
from posttrain.sandbox.order import call_order, run_order
from posttrain.sandbox.outcome import too_many_files
from posttrain.sandbox.wire import (
    CALL,
    MAX_BODY_BYTES,
    RUN,
    STATUS,
    CallRequest,
    RefusedError,
    RunRequest,
    max_answer_bytes,
    read_call_result,
    read_run_result,
    read_status,
    read_token,
    write_call,
    write_run,
)

T = TypeVar("T")

_ATTEMPTS = 4
_BACK_OFF_S = 0.25
"""Before the second attempt; twice as long before each further one."""
_MAX_RETRY_AFTER_S = 30.0
_CONNECT_S, _UNUSED_S = 10.0, 15.0
_MAX_STATUS_BYTES = 1 << 20


class _Fault(Exception):
    """Of the way or of the server; the message is a sentence."""


@dataclass(frozen=True)
class _Link:
    """Of one event loop."""

    client: httpx2.AsyncClient
    turns: asyncio.Semaphore


@dataclass(frozen=True)
class RemoteSandbox:
    """Cheap to make; the server is asked at the first use or question for the `tier`. `close` it in the event loop that
    used it."""

    url: str
    """Such as https://sandbox.example:8900."""
    token_file: Path
    """The same as the server's."""
    concurrency: int = 64
    """Requests at once in one event loop. Who of those goes first is the server's affair, by name and priority."""
    silence_s: float = 30.0
    """Without a byte from the server for so long, it is taken for dead."""
    _record: SandboxRecord = field(default_factory=SandboxRecord, init=False, repr=False, compare=False)
    _links: WeakKeyDictionary[asyncio.AbstractEventLoop, _Link] = field(
        default_factory=WeakKeyDictionary, init=False, repr=False, compare=False
    )

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
        body = write_call(CallRequest(source, function, inputs, limits, profile, _caller()))
        num_inputs = len(inputs)
        try:
            result = await self._ask(
                CALL, body, max_answer_bytes(num_inputs, limits), lambda answer: read_call_result(answer, num_inputs)
            )
        except _Fault as fault:
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
        body = write_run(RunRequest(order.argv, order.files, stdin, limits, _caller()))
        try:
            run = await self._ask(RUN, body, max_answer_bytes(0, limits), read_run_result)
        except _Fault as fault:
            run = self._fault(fault)
        self._note(run)
        return run

    async def test(
        self, tree: Mapping[str, str], tests: Mapping[str, str], expected: Sequence[str], *, limits: SandboxLimits
    ) -> TestResult:
        _refuse("test")

    async def session(self, tree: Mapping[str, str]) -> SandboxSession:
        _refuse("session")

    def figures(self) -> SandboxFigures:
        """What was asked for from here; the server's own are in its `status`."""
        return self._record.figures()

    def status(self) -> SandboxStatus:
        """The server's. Blocks until it answers. Raises as `tier` does."""
        with httpx2.Client(base_url=self.url, headers=self._headers, timeout=self._timeout, trust_env=False) as client:
            for attempt in range(_ATTEMPTS):
                try:
                    response = client.get(STATUS)
                    content = response.content[:_MAX_STATUS_BYTES]
                    self._check(response.status_code, content)
                    return read_status(content)
                except (httpx2.HTTPError, MalformedError, _Fault) as error:
                    sentence = _sentence(error)
                if attempt < _ATTEMPTS - 1:
                    time.sleep(_back_off_s(attempt))
        raise SandboxError(f"the sandbox server {self.url} did not answer {_ATTEMPTS} times: {sentence}")

    async def close(self) -> None:
        link = self._links.pop(asyncio.get_running_loop(), None)
        if link:
            await link.client.aclose()

    # ── asking ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _ask(self, path: str, body: bytes, max_bytes: int, read: Callable[[bytes], T]) -> T:
        """Raises `_Fault` when all attempts are through, and the server's refusals."""
        if len(body) > MAX_BODY_BYTES:
            raise UserError(f"an execution of {len(body)} bytes is too large to send: at most {MAX_BODY_BYTES}")
        async with self._turn() as client:
            for attempt in range(_ATTEMPTS):
                if attempt:
                    self._record.retried()
                    await asyncio.sleep(_back_off_s(attempt - 1))
                try:
                    return read(await self._post(client, path, body, max_bytes))
                except RefusedError as refused:
                    raise refused.error from None
                except (httpx2.HTTPError, MalformedError, _Fault) as error:
                    sentence = _sentence(error)
        raise _Fault(f"the sandbox server {self.url} failed {_ATTEMPTS} times: {sentence}")

    async def _post(self, client: httpx2.AsyncClient, path: str, body: bytes, max_bytes: int) -> bytes:
        """Waits for as long as the server says that too many wait already."""
        while True:
            async with client.stream("POST", path, content=body) as response:
                content = bytearray()
                async for part in response.aiter_raw():
                    content += part
                    if len(content) > max_bytes:
                        raise _Fault(f"it answered with more than {max_bytes} bytes")
            if response.status_code != httpx2.codes.TOO_MANY_REQUESTS:
                self._check(response.status_code, bytes(content))
                return bytes(content)
            await asyncio.sleep(_retry_after_s(response.headers.get("retry-after", "")))

    def _check(self, code: int, content: bytes) -> None:
        """Raises `_Fault` for what may be over soon, and what the caller is told otherwise."""
        said = _said(content)
        if code in (401, 403):
            raise ConfigError(
                f"the sandbox server {self.url} does not take the token in {str(self.token_file)!r}: {said}"
            )
        if code >= 500:
            raise _Fault(f"it answered {code}: {said}")
        if code != 200:
            raise SandboxError(f"the sandbox server {self.url} answered {code}: {said}")

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[httpx2.AsyncClient]:
        link = self._link()
        with self._record.waiting():
            await link.turns.acquire()
        try:
            with self._record.running():
                yield link.client
        finally:
            link.turns.release()

    def _link(self) -> _Link:
        loop = asyncio.get_running_loop()
        if loop not in self._links:
            client = httpx2.AsyncClient(
                base_url=self.url,
                headers=self._headers,
                timeout=self._timeout,
                limits=httpx2.Limits(max_connections=self.concurrency, keepalive_expiry=_UNUSED_S),
                trust_env=False,
            )
            self._links[loop] = _Link(client, asyncio.Semaphore(self.concurrency))
        return self._links[loop]

    @cached_property
    def _headers(self) -> dict[str, str]:
        token = read_token(self.token_file)
        return {"authorization": f"Bearer {token}", "content-type": "application/json", "accept-encoding": "identity"}

    @property
    def _timeout(self) -> httpx2.Timeout:
        return httpx2.Timeout(self.silence_s, connect=min(_CONNECT_S, self.silence_s), pool=None)

    def _note(self, run: RunResult) -> None:
        self._record.ended(run.result_class)
        if run.result_class is not ResultClass.INFRASTRUCTURE_ERROR:
            self.__dict__.setdefault("tier", run.tier)  # so that nobody has to ask for it

    def _fault(self, fault: _Fault) -> RunResult:
        """Nothing is known of the isolation of a server that never answered; it is then called the least."""
        tier: IsolationTier = self.__dict__.get("tier", IsolationTier.REDUCED)
        return RunResult(ResultClass.INFRASTRUCTURE_ERROR, tier, reason=str(fault))


def _caller() -> SandboxCaller:
    return SANDBOX_CALLER.get(SandboxCaller())


def _refuse(verb: str) -> NoReturn:
    raise SandboxError(f"the sandbox 'remote' has no verb {verb!r}; it has call and run")


def _back_off_s(attempt: int) -> float:
    return _BACK_OFF_S * float(2**attempt) * random.uniform(0.5, 1.0)


def _retry_after_s(header: str) -> float:
    seconds = float(header) if header.isdecimal() else 1.0
    return min(seconds, _MAX_RETRY_AFTER_S) * random.uniform(0.5, 1.0)


def _sentence(error: Exception) -> str:
    """Some errors of the transport say nothing."""
    return str(error) or type(error).__name__


def _said(content: bytes) -> str:
    """What an answer that is no 200 complains of."""
    with contextlib.suppress(ValueError, RecursionError):
        match json.loads(content):
            case {"error": str(sentence)}:
                return sentence[:500]
    return content[:200].decode(errors="replace").strip() or "it said nothing"
