"""Requests and answers of an ASGI application: bodies with a bound, and answers that may take their time."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from posttrain.sandbox.wire import MAX_BODY_BYTES

_LOG = logging.getLogger("posttrain.sandbox")
_MAX_DISCARDED_BYTES = 4 * MAX_BODY_BYTES
_RETRY_AFTER_S = 1

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class TurnedAwayError(Exception):
    """Nothing is done for this request; the message is a sentence for who made it."""

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


async def body_of(receive: Receive, *, keep: bool) -> bytes | None:
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


async def hold(work: asyncio.Task[bytes], receive: Receive, send: Send, *, beat_s: float) -> None:
    """Until it is answered, or nobody is there any more to be answered: the work is then cancelled. While it lasts the
    answer's begin and spaces go out, so that either side notices when the other is gone."""
    gone = asyncio.ensure_future(_disconnected(receive))
    begun = False
    try:
        while not work.done():
            await asyncio.wait({work, gone}, timeout=beat_s, return_when=asyncio.FIRST_COMPLETED)
            if gone.done() and not work.done():
                _LOG.info("a client hung up before its answer came")
                return
            if not work.done():
                begun = begun or await _begin(send, 200, {})
                await send({"type": "http.response.body", "body": b" ", "more_body": True})
        answered = work.result()
        begun = begun or await _begin(send, 200, {"content-length": str(len(answered))})
        await send({"type": "http.response.body", "body": answered})
    finally:
        gone.cancel()
        work.cancel()
        await asyncio.gather(gone, work, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _begin(send: Send, code: int, headers: dict[str, str]) -> bool:
    lines = {"content-type": "application/json", **headers}
    encoded = [(name.encode(), value.encode()) for name, value in lines.items()]
    await send({"type": "http.response.start", "status": code, "headers": encoded})
    return True


async def answer(send: Send, code: int, body: bytes, headers: dict[str, str] | None = None) -> None:
    await _begin(send, code, {"content-length": str(len(body)), **(headers or {})})
    await send({"type": "http.response.body", "body": body})


async def turn_away(send: Send, away: TurnedAwayError) -> None:
    headers = {"retry-after": str(_RETRY_AFTER_S)} if away.code in (429, 503) else {}
    await answer(send, away.code, json.dumps({"error": str(away)}).encode(), headers)
