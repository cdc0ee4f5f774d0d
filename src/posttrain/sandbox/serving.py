"""A sandbox over HTTP: the application, and serving it until it is told to stop. `remote.py` is the other end.

Nothing is answered without the token. What waits is bounded: more is told to come back. An execution whose client
hangs up is cancelled; a session has a lease (`serving_sessions.py`). TLS is for a proxy in front.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hmac
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import uvicorn

from posttrain.core.errors import ConfigError, SandboxError, UserError
from posttrain.core.protocols import Sandbox
from posttrain.core.sandbox_status import HasStatus, SandboxFigures, SandboxStatus
from posttrain.core.sandboxing import SANDBOX_CALLER, IsolationTier
from posttrain.sandbox.asgi import Receive, Send, TurnedAwayError, answer, body_of, hold, turn_away
from posttrain.sandbox.decode import MalformedError
from posttrain.sandbox.serving_sessions import ServedSessions
from posttrain.sandbox.wire import (
    CALL,
    MAX_BODY_BYTES,
    RUN,
    STATUS,
    TEST,
    CallRequest,
    RunRequest,
    TestRequest,
    read_call,
    read_run,
    read_test,
    write_call_result,
    write_run_result,
    write_status,
    write_test_result,
)
from posttrain.sandbox.wire_fields import write_refusal
from posttrain.sandbox.wire_session import SESSION_PATHS

_BEAT_S = 5.0
_LEASE_S = 60.0
_KEEP_ALIVE_S = 60
"""Longer than `link.py` keeps a connection that it does not use."""
_LAST_S = 10
"""For answers on their way, once nothing runs any more."""

_READERS: Mapping[str, Callable[[bytes], CallRequest | RunRequest | TestRequest]] = {
    CALL: read_call,
    RUN: read_run,
    TEST: read_test,
}


class SandboxApp:
    """An ASGI application. Of one event loop."""

    def __init__(
        self,
        sandbox: Sandbox,
        token: str,
        *,
        concurrency: int,
        max_waiting: int = 256,
        max_sessions: int = 16,
        beat_s: float = _BEAT_S,
        lease_s: float = _LEASE_S,
    ) -> None:
        self._sandbox, self._authorization = sandbox, f"Bearer {token}".encode()
        self._concurrency, self._max_admitted = concurrency, concurrency + max_waiting
        self._beat_s = beat_s
        self._sessions = ServedSessions(sandbox, max_sessions=max_sessions, lease_s=lease_s)
        self._num_admitted = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._draining = False

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", scope["type"]
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        allowed = hmac.compare_digest(given, self._authorization)
        # Read to its end whatever the answer is: one who is still sending may not hear it.
        body = await body_of(receive, keep=allowed)
        if not allowed:
            return await answer(send, 401, b'{"error":"the token is missing or wrong"}', {"www-authenticate": "Bearer"})
        try:
            match scope["method"], scope["path"]:
                case "GET", path if path == STATUS:
                    await answer(send, 200, write_status(await asyncio.to_thread(self.status)))
                case "POST", path if path in _READERS:
                    await self._take(_READERS[path], _whole(body), receive, send)
                case "POST", path if path in SESSION_PATHS:
                    work = asyncio.create_task(self._sessions.take(path, _whole(body)))
                    await hold(work, receive, send, beat_s=self._beat_s)
                case _:
                    raise TurnedAwayError(404, "there is no such path")
        except MalformedError as error:
            await turn_away(send, TurnedAwayError(400, str(error)))
        except TurnedAwayError as away:
            await turn_away(send, away)

    def status(self) -> SandboxStatus:
        """Raises `IsolationUnavailableError`."""
        if isinstance(self._sandbox, HasStatus):
            return dataclasses.replace(self._sandbox.status(), draining=self._draining)
        tier = IsolationTier(self._sandbox.tier)
        return SandboxStatus(tier, self._concurrency, SandboxFigures(), draining=self._draining)

    async def drain(self) -> None:
        """Take nothing more; return when what was taken has been answered, and every session is closed."""
        self._draining = True
        await self._sessions.drain()
        await self._idle.wait()

    async def close(self) -> None:
        """What a drain that was cut short has left of the sessions."""
        await self._sessions.close()

    async def _take(
        self,
        read: Callable[[bytes], CallRequest | RunRequest | TestRequest],
        body: bytes,
        receive: Receive,
        send: Send,
    ) -> None:
        if self._draining:
            raise TurnedAwayError(503, "this server is about to end")
        if self._num_admitted >= self._max_admitted:
            raise TurnedAwayError(429, f"{self._num_admitted - self._concurrency} executions wait already")
        asked = read(body)
        self._num_admitted += 1
        self._idle.clear()
        try:
            await hold(asyncio.create_task(self._execute(asked)), receive, send, beat_s=self._beat_s)
        finally:
            self._num_admitted -= 1
            if not self._num_admitted:
                self._idle.set()

    async def _execute(self, asked: CallRequest | RunRequest | TestRequest) -> bytes:
        """In a task of its own, so that the caller's name stays in it."""
        SANDBOX_CALLER.set(asked.caller)
        sandbox, limits = self._sandbox, asked.limits
        try:
            match asked:
                case CallRequest(source, function, inputs, _, profile):
                    return write_call_result(
                        await sandbox.call(source, function, inputs, limits=limits, profile=profile)
                    )
                case RunRequest(argv, files, stdin):
                    return write_run_result(await sandbox.run(argv, files=files, stdin=stdin, limits=limits))
                case TestRequest(tree, tests, expected):
                    return write_test_result(await sandbox.test(tree, tests, expected, limits=limits))
        except (UserError, SandboxError) as error:
            return write_refusal(error)


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
        await app.close()
        await serving


def listen(host: str, port: int) -> socket.socket:
    """Port 0 takes a free one. Raises `ConfigError` where it cannot be had."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        raise ConfigError(f"the sandbox cannot be served at {host} port {port}: {error}") from None
    # What it accepts has it too. asyncio knows this kind of socket for none of TCP's, and an answer's second part would
    # wait 40 ms for the client to acknowledge its first.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _whole(body: bytes | None) -> bytes:
    if body is None:
        raise TurnedAwayError(413, f"a request of more than {MAX_BODY_BYTES} bytes")
    return body
