"""The sessions that a server holds for its clients, each under a name that nobody can guess, and a lease.

A sign of life or a verb renews the lease; when it runs out, the client is dead, and its session is closed with
whatever runs in it. A client that hangs up is not dead: the verb goes on, and whoever asks for it again, under the
same number, gets its answer. So nothing is done twice but what changes nothing. Nothing here speaks HTTP.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from dataclasses import dataclass
from functools import partial

from posttrain.core.errors import SandboxError, UserError
from posttrain.core.protocols import Sandbox, SandboxSession
from posttrain.core.sandboxing import SANDBOX_CALLER, SandboxCaller
from posttrain.sandbox.asgi import TurnedAwayError
from posttrain.sandbox.wire_fields import write_refusal
from posttrain.sandbox.wire_session import (
    CLOSE,
    FORK,
    OPEN,
    RENEW,
    VERB,
    Opened,
    OpenRequest,
    VerbRequest,
    read_name,
    read_open,
    read_verb,
    write_opened,
    write_verb_answer,
)

_LOG = logging.getLogger("posttrain.sandbox")
_DONE = b"{}"
_ENDING = "this server is about to end"

Work = asyncio.Task[bytes]


@dataclass(eq=False)
class _Held:
    """One open session, and the last verb that it was asked for."""

    session: SandboxSession
    caller: SandboxCaller
    expiry: asyncio.TimerHandle
    number: int = 0
    asked: bytes = b""
    """A hash of the request: who asks again asks for the same."""
    work: Work | None = None
    """Remembers the answer. None before the first verb, and after one that may be done again."""


class ServedSessions:
    """Of one event loop."""

    def __init__(self, sandbox: Sandbox, *, max_sessions: int, lease_s: float) -> None:
        self._sandbox, self._max_sessions, self._lease_s = sandbox, max_sessions, lease_s
        self._held: dict[str, _Held] = {}
        self._opening: set[Work] = set()
        self._closing: set[Work] = set()
        self._ending = False

    async def take(self, path: str, body: bytes) -> bytes:
        """The answer. Cancelling this does not cancel what was asked for. Raises `MalformedError` and
        `TurnedAwayError`, both before anything is done."""
        match path:
            case _ if path == OPEN:
                return await _answer_of(self._open(read_open(body)))
            case _ if path == VERB:
                return await _answer_of(self._verb(read_verb(body), hashlib.sha256(body).digest()))
            case _ if path == RENEW:
                self._find(read_name(body))
                return _DONE
            case _ if path == CLOSE:
                # One that is not there is closed already: who did not hear the answer asks again.
                work = self._give_up(read_name(body))
                return await _answer_of(work) if work else _DONE
        raise AssertionError(path)

    async def drain(self) -> None:
        """Open nothing more; the verbs that run may end, and each session is closed after its own."""
        self._ending = True
        await asyncio.gather(*(self._close_when_idle(name, held) for name, held in list(self._held.items())))
        while self._opening:
            await asyncio.wait(self._opening)
        await self.close()

    async def close(self) -> None:
        """All sessions, whatever runs in them."""
        self._ending = True
        for work in self._opening:
            work.cancel()
        for name in list(self._held):
            self._give_up(name)
        while unfinished := self._opening | self._closing:
            await asyncio.wait(unfinished)

    # ── sessions ──────────────────────────────────────────────────────────────────────────────────────────────

    def _open(self, asked: OpenRequest) -> Work:
        self._check_room()
        return _keep(asyncio.create_task(self._open_now(asked)), self._opening)

    async def _open_now(self, asked: OpenRequest) -> bytes:
        SANDBOX_CALLER.set(asked.caller)
        try:
            session = await self._sandbox.session(asked.tree, limits=asked.limits, background=asked.background)
            return write_opened(self._hold(session, asked.caller))
        except (UserError, SandboxError) as error:
            return write_refusal(error)

    def _check_room(self) -> None:
        if self._ending:
            raise TurnedAwayError(503, _ENDING)
        if len(self._held) + len(self._opening) + len(self._closing) >= self._max_sessions:
            raise TurnedAwayError(429, f"{self._max_sessions} sessions are open already")

    def _hold(self, session: SandboxSession, caller: SandboxCaller) -> Opened:
        name = secrets.token_urlsafe(32)
        self._held[name] = _Held(session, caller, self._expiry(name))
        if self._ending:
            self._give_up(name)
            raise SandboxError(f"the session is lost: {_ENDING}")
        return Opened(name, self._lease_s)

    def _find(self, name: str) -> _Held:
        """And renew its lease."""
        held = self._held.get(name)
        if held is None:
            raise TurnedAwayError(410, _lost(self._lease_s))
        held.expiry.cancel()
        held.expiry = self._expiry(name)
        return held

    def _expiry(self, name: str) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(self._lease_s, self._expire, name)

    def _expire(self, name: str) -> None:
        _LOG.warning("a session was closed: nothing was heard of its client for %g s", self._lease_s)
        self._give_up(name)

    def _give_up(self, name: str) -> Work | None:
        """None for one that is not there."""
        held = self._held.pop(name, None)
        if held is None:
            return None
        held.expiry.cancel()
        return _keep(asyncio.create_task(_close(held)), self._closing)

    async def _close_when_idle(self, name: str, held: _Held) -> None:
        if held.work:
            await asyncio.wait({held.work})
        self._give_up(name)

    # ── verbs ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _verb(self, asked: VerbRequest, digest: bytes) -> Work:
        held = self._find(asked.session)
        again = (asked.number, digest) == (held.number, held.asked)
        if again and held.work:
            return held.work
        if not again and asked.number <= held.number:
            raise TurnedAwayError(409, f"verb {asked.number} of this session is over: {held.number} was the last one")
        if held.work and not held.work.done():
            raise TurnedAwayError(409, f"verb {held.number} of this session runs still, and it does one at a time")
        if self._ending:
            raise TurnedAwayError(410, f"the session is lost: {_ENDING}")
        if asked.verb is FORK:
            self._check_room()
        held.number, held.asked = asked.number, digest
        held.work = asyncio.create_task(self._do(held, asked))
        if asked.verb is FORK:
            _keep(held.work, self._opening)
        if asked.verb.repeatable:
            held.work.add_done_callback(partial(_forget, held))
        return held.work

    async def _do(self, held: _Held, asked: VerbRequest) -> bytes:
        """In a task of its own, so that the caller's name stays in it."""
        SANDBOX_CALLER.set(held.caller)
        try:
            done = await getattr(held.session, asked.verb.name)(**asked.arguments)
            answer = self._hold(done, held.caller) if asked.verb is FORK else done
            return write_verb_answer(asked.verb, answer)
        except (UserError, SandboxError) as error:
            return write_refusal(error)


async def _close(held: _Held) -> bytes:
    if held.work:
        held.work.cancel()
        await asyncio.wait({held.work})
    try:
        await held.session.close()
    except SandboxError as error:
        _LOG.warning("a session could not be closed: %s", error)
        return write_refusal(error)
    return _DONE


def _keep(work: Work, among: set[Work]) -> Work:
    """For as long as it lasts."""
    among.add(work)
    work.add_done_callback(among.discard)
    return work


async def _answer_of(work: Work) -> bytes:
    await asyncio.wait({work})
    return write_refusal(SandboxError("the session is lost: it was closed")) if work.cancelled() else work.result()


def _forget(held: _Held, work: Work) -> None:
    """Its answer: whoever waits for it has it."""
    if held.work is work:
        held.work = None


def _lost(lease_s: float) -> str:
    return (
        f"the session is lost: this server does not hold it, or no longer (without a sign of life for {lease_s:g} s "
        "it is closed)"
    )
