"""The scripted engine: replies come from a script. The one fake behind the engine seam, for tests of what stands above.

It keeps to what a real engine promises: stop tokens and limits cut a reply, tokens carry the version that is published,
the fingerprint is that of the published folder. It models nothing, and needs no torch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from posttrain.core.errors import DeadlineExceededError, EngineError
from posttrain.core.fingerprint import folder_fingerprint
from posttrain.core.protocols import EngineCapabilities, GenerateRequest, Generation, PauseMode
from posttrain.core.types import StopReason


@dataclass(frozen=True)
class Reply:
    """What the engine is to sample for one request; it is cut at the first stop token and at the request's limit."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...] = ()
    """One for each token; empty: -1 each."""
    stop: StopReason | None = None
    """None: what a real engine would say. ABORTED, say, to see what happens then."""


Script = Mapping[tuple[int, ...], Reply] | Callable[[GenerateRequest], Reply]
"""A reply for each prompt, or a function of the request."""


class ScriptedEngine:
    """Implements `core.protocols.RolloutEngine`. `requests` and `published` hold what it was asked, in order."""

    def __init__(
        self,
        script: Script | None = None,
        model: Path | None = None,
        max_context: int = 2048,
        delay_s: float = 0.0,
        failures: Mapping[int, Exception] | None = None,
        loses_publishes: bool = False,
    ) -> None:
        """Without a script every reply is one stop token, or token 0. `failures`: number of the `generate` call, from
        0 → what it raises. `loses_publishes`: versions go up, weights do not arrive (law L17)."""
        self.script = script if script is not None else _stop_at_once
        self.requests: list[tuple[GenerateRequest, ...]] = []
        self.published: list[tuple[int, Path]] = []
        self.closed = False
        self._max_context = max_context
        self._delay_s = delay_s
        self._failures = dict(failures or {})
        self._loses_publishes = loses_publishes
        self._version = 0
        self._fingerprint = folder_fingerprint(model) if model is not None else "scripted"
        self._running = 0
        self._changed = asyncio.Condition()
        self._paused = False

    async def generate(
        self, requests: Sequence[GenerateRequest], *, timeout_s: float | None = None
    ) -> list[Generation]:
        """Waits while paused. Takes `delay_s`, or `timeout_s` and then raises `DeadlineExceededError`."""
        call = len(self.requests)
        self.requests.append(tuple(requests))
        async with self._changed:
            await self._changed.wait_for(lambda: not self._paused)
            self._running += 1
        try:
            if call in self._failures:
                raise self._failures[call]
            await self._take_time(timeout_s)
            return [self._generation(request) for request in requests]
        finally:
            async with self._changed:
                self._running -= 1
                self._changed.notify_all()

    async def publish(self, version: int, weights: Path) -> None:
        self.published.append((version, weights))
        self._version = version
        if not self._loses_publishes:
            self._fingerprint = folder_fingerprint(weights)

    async def pause(self, mode: PauseMode) -> None:
        """Returns when no call is running; calls that come later wait."""
        if mode is not PauseMode.DRAIN:
            raise EngineError(f"the scripted engine can be paused by {PauseMode.DRAIN}, not {mode}")
        async with self._changed:
            self._paused = True
            await self._changed.wait_for(lambda: self._running == 0)

    async def resume(self) -> None:
        async with self._changed:
            self._paused = False
            self._changed.notify_all()

    async def fingerprint(self) -> str:
        """Of the folder that was published last; no weights are held."""
        return self._fingerprint

    async def capabilities(self) -> EngineCapabilities:
        return EngineCapabilities("scripted", self._max_context, "none", (PauseMode.DRAIN,), shares_prompts=False)

    async def close(self) -> None:
        self.closed = True

    async def _take_time(self, timeout_s: float | None) -> None:
        if timeout_s is not None and self._delay_s > timeout_s:
            await asyncio.sleep(timeout_s)
            raise DeadlineExceededError(f"the scripted engine ran out of time: {timeout_s:.1f} s of {timeout_s:.1f} s")
        if self._delay_s:
            await asyncio.sleep(self._delay_s)

    def _generation(self, request: GenerateRequest) -> Generation:
        reply = self._reply(request)
        room = max(0, self._max_context - len(request.prompt))
        limit = min(room, request.max_new_tokens)
        stop = StopReason.MAX_CONTEXT if room < request.max_new_tokens else StopReason.MAX_NEW_TOKENS
        tokens = list(reply.tokens[:limit])
        for place, token in enumerate(tokens):
            if token in request.stop_tokens:
                tokens = tokens[: place + 1]
                stop = StopReason.STOP
                break
        logprobs = reply.logprobs or (-1.0,) * len(reply.tokens)
        return Generation(
            request_id=request.request_id,
            tokens=np.asarray(tokens, dtype=np.int32),
            logprobs=np.asarray(logprobs[: len(tokens)], dtype=np.float32),
            versions=np.full(len(tokens), self._version, dtype=np.int32),
            stop=reply.stop or stop,
        )

    def _reply(self, request: GenerateRequest) -> Reply:
        if callable(self.script):
            return self.script(request)
        prompt = tuple(request.prompt.tolist())
        if prompt not in self.script:
            raise EngineError(f"the script has no reply to the prompt of request {request.request_id}: {prompt}")
        return self.script[prompt]


def _stop_at_once(request: GenerateRequest) -> Reply:
    return Reply((request.stop_tokens or (0,))[:1])
