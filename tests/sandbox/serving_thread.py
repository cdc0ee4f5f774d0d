"""A sandbox server on a free port of this machine's loopback, in a thread of this process, for as long as a test."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from posttrain.core.protocols import Sandbox
from posttrain.sandbox.remote import RemoteSandbox
from posttrain.sandbox.serving import SandboxApp, listen, serve

TOKEN = "a-token-that-only-tests-have"


class Serving:
    """`stop` drains it and returns at once; leaving `serving` waits for its end."""

    def __init__(self, sandbox: Sandbox, folder: Path, options: dict[str, Any]) -> None:
        self.token_file = folder / "token"
        self.token_file.write_text(TOKEN + "\n")
        self._listener = listen("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.sandbox, self._options = sandbox, options
        self._started = threading.Event()
        self.thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    def client(self, **options: float) -> RemoteSandbox:
        return RemoteSandbox(self.url, self.token_file, **options)  # type: ignore[arg-type]

    def start(self) -> None:
        self.thread.start()
        self._started.wait()

    def cancel(self) -> None:
        """Whatever runs."""
        self._loop.call_soon_threadsafe(self._task.cancel)

    def stop(self) -> None:
        with contextlib.suppress(RuntimeError):  # it has ended already
            self._loop.call_soon_threadsafe(self._stop.set)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._task = asyncio.ensure_future(self._serve_until_stopped())
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        await self.sandbox.close()

    async def _serve_until_stopped(self) -> None:
        app = SandboxApp(self.sandbox, TOKEN, **self._options)
        await serve(app, self._listener, self._stop, self._started.set)


@contextlib.asynccontextmanager
async def closing(sandbox: RemoteSandbox) -> AsyncIterator[RemoteSandbox]:
    try:
        yield sandbox
    finally:
        await sandbox.close()


@contextlib.contextmanager
def serving(sandbox: Sandbox, folder: Path, **options: Any) -> Iterator[Serving]:
    """`options` are those of `SandboxApp`."""
    server = Serving(sandbox, folder, {"concurrency": 2} | options)
    server.start()
    try:
        yield server
    except BaseException:
        server.cancel()  # what the test holds would go on for ever
        raise
    finally:
        server.stop()
        server.thread.join()
