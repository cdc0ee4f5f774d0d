"""A sandbox over HTTP: the application, and serving it until it is told to stop. `remote.py` is the other end.

Nothing is answered without the token. What waits is bounded: more is told to come back. An execution whose client
hangs up is cancelled, and while one lasts the answer's begin and spaces go out, so that either side notices when the
other is gone. TLS is for a proxy in front.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hmac
import json
import logging
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import uvicorn

from posttrain.core.errors import ConfigError, SandboxError, UserError
from posttrain.core.protocols import Sandbox
from posttrain.core.sandbox_status import HasStatus, SandboxFigures, SandboxStatus
from posttrain.core.sandboxing import SANDBOX_CALLER, IsolationTier
from posttrain.sandbox.decode import MalformedError
from posttrain.sandbox.wire import (
    CALL,
    MAX_BODY_BYTES,
    RUN,
    STATUS,
    CallRequest,
    RunRequest,
    read_call,
    read_run,
    write_call_result,
    write_refusal,
    write_run_result,
    write_status,
)

_LOG = logging.getLogger("posttrain.sandbox")
_BEAT_S = 5.0
_MAX_DISCARDED_BYTES = 4 * MAX_BODY_BYTES
_RETRY_AFTER_S = 1
_KEEP_ALIVE_S = 60
"""Longer than `remote.py` keeps a connection that it does not use."""
_LAST_S = 10
"""For answers on their way, once nothing runs any more."""

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class SandboxApp:
    """An ASGI application. Of one event loop."""

    def __init__(
        self, sandbox: Sandbox, token: str, *, concurrency: int, max_waiting: int = 256, beat_s: float = _BEAT_S
    ) -> None:
        self._sandbox, self._authorization = sandbox, f"Bearer {token}".encode()
        self._concurrency, self._max_admitted = concurrency, concurrency + max_waiting
        self._beat_s = beat_s
        self._num_admitted = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._draining = False

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", scope["type"]
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        allowed = hmac.compare_digest(given, self._authorization)
        # Read to its end whatever the answer is: one who is still sending may not hear it.
        body = await _body(receive, keep=allowed)
        if not allowed:
            return await _answer(
                send, 401, b'{"error":"the token is missing or wrong"}', {"www-authenticate": "Bearer"}
            )
        match scope["method"], scope["path"]:
            case "GET", path if path == STATUS:
                return await _answer(send, 200, write_status(await asyncio.to_thread(self.status)))
            case "POST", path if path in (CALL, RUN):
                return await self._take(path, body, receive, send)
        return await _answer(send, 404, b'{"error":"there is no such path"}')

    def status(self) -> SandboxStatus:
        """Raises `IsolationUnavailableError`."""
        if isinstance(self._sandbox, HasStatus):
            return dataclasses.replace(self._sandbox.status(), draining=self._draining)
        tier = IsolationTier(self._sandbox.tier)
        return SandboxStatus(tier, self._concurrency, SandboxFigures(), draining=self._draining)

    async def drain(self) -> None:
        """Take nothing more; return when what was taken has been answered."""
        self._draining = True
        await self._idle.wait()

    async def _take(self, path: str, body: bytes | None, receive: Receive, send: Send) -> None:
        later = {"retry-after": str(_RETRY_AFTER_S)}
        if body is None:
            return await _answer(send, 413, _error(f"a request of more than {MAX_BODY_BYTES} bytes"))
        if self._draining:
            return await _answer(send, 503, _error("this server is about to end"), later)
        if self._num_admitted >= self._max_admitted:
            waiting = self._num_admitted - self._concurrency
            return await _answer(send, 429, _error(f"{waiting} executions wait already"), later)
        try:
            asked = read_call(body) if path == CALL else read_run(body)
        except MalformedError as error:
            return await _answer(send, 400, _error(str(error)))
        self._num_admitted += 1
        self._idle.clear()
        try:
            await self._hold(asyncio.create_task(self._execute(asked)), receive, send)
        finally:
            self._num_admitted -= 1
            if not self._num_admitted:
                self._idle.set()
        return None

    async def _execute(self, asked: CallRequest | RunRequest) -> bytes:
        """In a task of its own, so that the caller's name stays in it."""
        SANDBOX_CALLER.set(asked.caller)
        try:
            if isinstance(asked, RunRequest):
                run = await self._sandbox.run(asked.argv, files=asked.files, stdin=asked.stdin, limits=asked.limits)
                return write_run_result(run)
            return write_call_result(
                await self._sandbox.call(
                    asked.source, asked.function, asked.inputs, limits=asked.limits, profile=asked.profile
                )
            )
        except (UserError, SandboxError) as error:
            return write_refusal(error)

    async def _hold(self, work: asyncio.Task[bytes], receive: Receive, send: Send) -> None:
        """Until it is answered, or nobody is there any more to be answered."""
        gone = asyncio.ensure_future(_disconnected(receive))
        begun = False
        try:
            while not work.done():
                await asyncio.wait({work, gone}, timeout=self._beat_s, return_when=asyncio.FIRST_COMPLETED)
                if gone.done() and not work.done():
                    _LOG.info("an execution was cancelled: its client hung up")
                    return
                if not work.done():
                    begun = begun or await _begin(send, 200, {})
                    await send({"type": "http.response.body", "body": b" ", "more_body": True})
            answer = work.result()
            begun = begun or await _begin(send, 200, {"content-length": str(len(answer))})
            await send({"type": "http.response.body", "body": answer})
        finally:
            gone.cancel()
            work.cancel()
            await asyncio.gather(gone, work, return_exceptions=True)


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are `serve`'s caller's affair: uvicorn would refuse new requests, and not say 503."""
        yield


async def serve(
    app: SandboxApp, listener: socket.socket, stop: asyncio.Event, on_start: Callable[[], None] = lambda: None
) -> None:
    """Until `stop` is set and nothing runs any more. The listener is closed then."""
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_LAST_S,
    )
    server = _Server(config)
    serving = asyncio.ensure_future(server.serve([listener]))
    stopping = asyncio.ensure_future(stop.wait())
    try:
        on_start()
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        await app.drain()
    finally:
        stopping.cancel()
        server.should_exit = True
        await serving


def listen(host: str, port: int) -> socket.socket:
    """Port 0 takes a free one. Raises `ConfigError` where it cannot be had."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        raise ConfigError(f"the sandbox cannot be served at {host} port {port}: {error}") from None


async def _body(receive: Receive, *, keep: bool) -> bytes | None:
    """None for one that is too large, or not to be kept, or of a client that is gone."""
    parts: list[bytes] = []
    num_bytes = 0
    while num_bytes <= _MAX_DISCARDED_BYTES:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        part = message.get("body", b"")
        num_bytes += len(part)
        if keep and num_bytes <= MAX_BODY_BYTES:
            parts.append(part)
        else:
            parts.clear()
        if not message.get("more_body", False):
            return b"".join(parts) if keep and num_bytes <= MAX_BODY_BYTES else None
    return None


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _begin(send: Send, code: int, headers: dict[str, str]) -> bool:
    lines = {"content-type": "application/json", **headers}
    encoded = [(name.encode(), value.encode()) for name, value in lines.items()]
    await send({"type": "http.response.start", "status": code, "headers": encoded})
    return True


async def _answer(send: Send, code: int, body: bytes, headers: dict[str, str] | None = None) -> None:
    await _begin(send, code, {"content-length": str(len(body)), **(headers or {})})
    await send({"type": "http.response.body", "body": body})


def _error(sentence: str) -> bytes:
    return json.dumps({"error": sentence}).encode()
