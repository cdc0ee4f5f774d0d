"""A session of a sandbox elsewhere: every verb goes to the server that holds it, and is done there once.

Verbs are numbered, and the server answers one whose number it knows from memory: a verb is asked for again after a
broken connection, and never done again that way, unless it changes nothing. When it is not known what became of a
verb, the session is lost. A task tells the server that somebody is still here; when it falls silent for a lease, as
that of a dead process does, the server closes the session.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from posttrain.core.errors import SandboxError, UserError
from posttrain.core.sandboxing import CellResult, RunResult, SandboxLimits, TestResult
from posttrain.sandbox.link import Link, ServerFault
from posttrain.sandbox.wire_session import (
    CELL,
    CLOSE,
    DIFF,
    EDIT,
    EXEC,
    FORK,
    LIST,
    MAX_SHORT_ANSWER_BYTES,
    READ,
    RENEW,
    RESTORE,
    RUN_TESTS,
    SNAPSHOT,
    VERB,
    WRITE,
    Opened,
    Verb,
    VerbRequest,
    max_verb_answer_bytes,
    read_done,
    read_verb_answer,
    write_name,
    write_verb,
)

T = TypeVar("T")

_BEATS_PER_LEASE = 4
_NO_STEP = SandboxLimits(output_kib=0)
_CLOSED = "the session is closed"


class RemoteSession:
    """Made by `RemoteSandbox.session`; of the event loop that made it. Verbs do and raise what those of a local session
    do, one at a time; `SandboxError` says "the session is lost" also where the server no longer holds it. A verb that
    is cancelled while it runs loses the session, as it does there."""

    def __init__(self, link: Link, opened: Opened, limits: SandboxLimits) -> None:
        self._link, self._opened, self._limits = link, opened, limits
        self._number = 0
        self._lock = asyncio.Lock()
        self._over = ""
        """Why there are no verbs any more."""
        self._here = contextlib.ExitStack()
        """What is held on this side."""
        self._here.enter_context(link.sessions.running())
        open_here = link.here().to_close
        open_here.add(self.close)
        self._here.callback(open_here.discard, self.close)
        self._here.callback(asyncio.create_task(_beat(link, opened)).cancel)

    async def exec(self, argv: Sequence[str], *, stdin: str = "", limits: SandboxLimits) -> RunResult:
        return await self._do(EXEC, limits, argv=argv, stdin=stdin, limits=limits)

    async def cell(self, code: str, *, limits: SandboxLimits) -> CellResult:
        return await self._do(CELL, limits, code=code, limits=limits)

    async def read(self, path: str) -> bytes:
        return await self._do(READ, path=path)

    async def write(self, path: str, content: bytes) -> None:
        await self._do(WRITE, path=path, content=content)

    async def edit(self, path: str, old: str, new: str) -> None:
        await self._do(EDIT, path=path, old=old, new=new)

    async def list(self, path: str = ".") -> list[str]:
        return await self._do(LIST, path=path)

    async def run_tests(
        self, tests: Mapping[str, str], expected: Sequence[str], *, limits: SandboxLimits
    ) -> TestResult:
        return await self._do(RUN_TESTS, limits, tests=tests, expected=expected, limits=limits)

    async def snapshot(self) -> str:
        return await self._do(SNAPSHOT)

    async def restore(self, snapshot: str) -> None:
        await self._do(RESTORE, snapshot=snapshot)

    async def fork(self) -> RemoteSession:
        return RemoteSession(self._link, await self._do(FORK), self._limits)

    async def diff(self) -> dict[str, bytes | None]:
        return await self._do(DIFF)

    async def close(self) -> None:
        """Idempotent; a verb that runs is cut short. Where the server cannot be told, its lease frees the slot."""
        if self._over == _CLOSED:
            return
        self._end(_CLOSED)
        self._over = _CLOSED
        with contextlib.suppress(ServerFault):
            await self._link.ask(CLOSE, write_name(self._opened.session), MAX_SHORT_ANSWER_BYTES, read_done)

    async def _do(self, verb: Verb[T], step: SandboxLimits = _NO_STEP, **arguments: Any) -> T:
        async with self._lock:
            if self._over:
                raise SandboxError(self._over)
            self._number += 1
            body = write_verb(VerbRequest(self._opened.session, self._number, verb, arguments))
            max_bytes = max_verb_answer_bytes(body, self._limits, step)
            try:
                with self._link.record.running():
                    return await self._link.ask(VERB, body, max_bytes, partial(read_verb_answer, verb))
            except ServerFault as fault:
                self._end(f"the session is lost, and with it what became of {verb.name!r}: {fault}")
                raise SandboxError(self._over) from None
            except asyncio.CancelledError:
                self._end(f"the session is lost: {verb.name!r} was cancelled while it ran")
                raise

    def _end(self, why: str) -> None:
        self._over = self._over or why
        self._here.close()


async def _beat(link: Link, opened: Opened) -> None:
    body = write_name(opened.session)
    while True:
        await asyncio.sleep(opened.lease_s / _BEATS_PER_LEASE)
        try:
            await link.ask(RENEW, body, MAX_SHORT_ANSWER_BYTES, read_done)
        except ServerFault:
            continue  # it may be back before the lease is over
        except (SandboxError, UserError):
            return  # and the next verb is told
