"""The way to one sandbox server: what is asked is posted, tried again when something fails on the way, and read.

What fails on the way, or in the server, is a `ServerFault` when all attempts are through. Whether what was asked has
happened is then not known. Without a byte for so long the server is taken for dead.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeVar
from weakref import WeakKeyDictionary

import httpx2

from posttrain.core.errors import ConfigError, SandboxError, UserError
from posttrain.core.sandbox_status import SandboxStatus
from posttrain.sandbox.decode import MalformedError
from posttrain.sandbox.metrics import SandboxRecord
from posttrain.sandbox.wire import MAX_BODY_BYTES, STATUS, read_status, read_token
from posttrain.sandbox.wire_fields import RefusedError

T = TypeVar("T")

_ATTEMPTS = 4
_BACK_OFF_S = 0.25
"""Before the second attempt; twice as long before each further one."""
_MAX_RETRY_AFTER_S = 30.0
_CONNECT_S, _UNUSED_S = 10.0, 15.0
_MAX_STATUS_BYTES = 1 << 20


class ServerFault(Exception):
    """Of the way or of the server; the message is a sentence."""


@dataclass(frozen=True)
class Here:
    """Of one event loop."""

    client: httpx2.AsyncClient
    turns: asyncio.Semaphore
    to_close: set[Callable[[], Awaitable[None]]] = field(default_factory=set)
    """What needs the way, and ends before it does."""


@dataclass(frozen=True)
class Link:
    """For any number of event loops."""

    url: str
    token_file: Path
    concurrency: int
    silence_s: float
    record: SandboxRecord
    """Of the executions."""
    sessions: SandboxRecord
    """Of the sessions that are open."""
    _loops: WeakKeyDictionary[asyncio.AbstractEventLoop, Here] = field(default_factory=WeakKeyDictionary)

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """To ask for something that ends by itself, as one of so many at once."""
        turns = self.here().turns
        with self.record.waiting():
            await turns.acquire()
        try:
            with self.record.running():
                yield
        finally:
            turns.release()

    async def ask(
        self,
        path: str,
        body: bytes,
        max_bytes: int,
        read: Callable[[bytes], T],
        on_retry: Callable[[], None] = lambda: None,
    ) -> T:
        """Raises `ServerFault`, and the server's refusals. Each attempt sends the same."""
        if len(body) > MAX_BODY_BYTES:
            raise UserError(f"a request of {len(body)} bytes is too large to send: at most {MAX_BODY_BYTES}")
        client = self.here().client
        for attempt in range(_ATTEMPTS):
            if attempt:
                on_retry()
                await asyncio.sleep(_back_off_s(attempt - 1))
            try:
                return read(await self._post(client, path, body, max_bytes))
            except RefusedError as refused:
                raise refused.error from None
            except (httpx2.HTTPError, MalformedError, ServerFault) as error:
                sentence = _sentence(error)
        raise ServerFault(f"the sandbox server {self.url} failed {_ATTEMPTS} times: {sentence}")

    def status(self) -> SandboxStatus:
        """Blocks until the server answers. Raises `SandboxError` where it does not, and `ConfigError` for a token that
        is not the server's."""
        with httpx2.Client(base_url=self.url, headers=self._headers, timeout=self._timeout, trust_env=False) as client:
            for attempt in range(_ATTEMPTS):
                try:
                    response = client.get(STATUS)
                    content = response.content[:_MAX_STATUS_BYTES]
                    self._check(response.status_code, content)
                    return read_status(content)
                except (httpx2.HTTPError, MalformedError, ServerFault) as error:
                    sentence = _sentence(error)
                if attempt < _ATTEMPTS - 1:
                    time.sleep(_back_off_s(attempt))
        raise SandboxError(f"the sandbox server {self.url} did not answer {_ATTEMPTS} times: {sentence}")

    def here(self) -> Here:
        loop = asyncio.get_running_loop()
        if loop not in self._loops:
            client = httpx2.AsyncClient(
                base_url=self.url,
                headers=self._headers,
                timeout=self._timeout,
                limits=httpx2.Limits(keepalive_expiry=_UNUSED_S),
                trust_env=False,
            )
            self._loops[loop] = Here(client, asyncio.Semaphore(self.concurrency))
        return self._loops[loop]

    async def close(self) -> None:
        """In this event loop; what is asked for afterwards opens it again."""
        loop = asyncio.get_running_loop()
        if here := self._loops.get(loop):
            await asyncio.gather(*(close() for close in list(here.to_close)))
            del self._loops[loop]
            await here.client.aclose()

    async def _post(self, client: httpx2.AsyncClient, path: str, body: bytes, max_bytes: int) -> bytes:
        """Waits for as long as the server says that it is too busy."""
        while True:
            async with client.stream("POST", path, content=body) as response:
                content = bytearray()
                async for part in response.aiter_raw():
                    content += part
                    if len(content) > max_bytes:
                        raise ServerFault(f"it answered with more than {max_bytes} bytes")
            if response.status_code != httpx2.codes.TOO_MANY_REQUESTS:
                self._check(response.status_code, bytes(content))
                return bytes(content)
            await asyncio.sleep(_retry_after_s(response.headers.get("retry-after", "")))

    def _check(self, code: int, content: bytes) -> None:
        """Raises `ServerFault` for what may be over soon, and what the caller is told otherwise."""
        said = _said(content)
        if code in (401, 403):
            raise ConfigError(
                f"the sandbox server {self.url} does not take the token in {str(self.token_file)!r}: {said}"
            )
        if code == httpx2.codes.GONE:
            raise SandboxError(f"{said} (sandbox server {self.url})")
        if code >= 500:
            raise ServerFault(f"it answered {code}: {said}")
        if code != 200:
            raise SandboxError(f"the sandbox server {self.url} answered {code}: {said}")

    @cached_property
    def _headers(self) -> dict[str, str]:
        token = read_token(self.token_file)
        return {"authorization": f"Bearer {token}", "content-type": "application/json", "accept-encoding": "identity"}

    @property
    def _timeout(self) -> httpx2.Timeout:
        return httpx2.Timeout(self.silence_s, connect=min(_CONNECT_S, self.silence_s), pool=None)


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
