"""`posttrain sandbox serve`, without the parsing: the sandbox of this machine over HTTP, until it is told to end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

from posttrain.core.errors import ConfigError
from posttrain.sandbox.local import LocalSandbox
from posttrain.sandbox.serving import SandboxApp, listen, serve
from posttrain.sandbox.wire import read_token


def sandbox_serve(
    host: str,
    port: int,
    token_file: Path,
    concurrency: int | None,
    max_waiting: int,
    sessions: int,
    note: Callable[[str], None],
) -> None:
    """Returns after SIGTERM or SIGINT, when what ran has ended and sessions are closed; a second one ends what runs.
    Raises `ConfigError` for a token, an address or an amount that will not do, and `IsolationUnavailableError`."""
    if max_waiting < 0:
        raise ConfigError(f"--max-waiting is {max_waiting}; it must be at least 0")
    if sessions < 1:
        raise ConfigError(f"--sessions is {sessions}; it must be at least 1: a test runs in one")
    token = read_token(token_file)
    sandbox = LocalSandbox(concurrency=concurrency, sessions=sessions)
    status = sandbox.status()  # asked now: without isolation nothing is served (law L27)
    with listen(host, port) as listener:
        at = "{}:{}".format(*listener.getsockname()[:2])
        amounts = f"{status.concurrency} at once, {max_waiting} may wait, {sessions} sessions"
        note(f"serving sandbox local at http://{at}, tier {status.tier}, {amounts}")
        app_options = {"concurrency": status.concurrency, "max_waiting": max_waiting, "max_sessions": sessions}

        async def until_told() -> None:
            app = SandboxApp(sandbox, token, **app_options)
            stop, serving = asyncio.Event(), asyncio.current_task()
            assert serving is not None

            def on_signal() -> None:
                if stop.is_set():
                    serving.cancel()
                else:
                    note("told to end: what runs goes on, and nothing new is begun")
                    stop.set()

            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, on_signal)
            try:
                await serve(app, listener, stop)
            except asyncio.CancelledError:
                note("told to end twice: what ran was ended")
            finally:
                await sandbox.close()

        asyncio.run(until_told())
