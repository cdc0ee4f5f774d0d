"""What engines that compute inside a call have in common: request checks, pausing, deadlines, limits.

Such an engine runs one call at a time to its end, so nothing is running whenever another call arrives: it can drain and
nothing else. It samples nothing itself.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from posttrain.core.errors import DeadlineExceededError, EngineError
from posttrain.core.protocols import EngineCapabilities, GenerateRequest, Generation, PauseMode
from posttrain.core.types import StopReason


class Deadline:
    """Checked between steps; without a limit it never comes."""

    def __init__(self, timeout_s: float | None) -> None:
        self._started = time.monotonic()
        self._timeout_s = timeout_s

    def check(self, finished: int, total: int) -> None:
        """Raises `DeadlineExceededError`; the two numbers are for its sentence."""
        elapsed_s = time.monotonic() - self._started
        if self._timeout_s is not None and elapsed_s > self._timeout_s:
            raise DeadlineExceededError(
                f"the engine ran out of time: {elapsed_s:.1f} s of {self._timeout_s:.1f} s "
                f"({finished} of {total} requests finished)"
            )


def token_limit(request: GenerateRequest, max_context: int) -> tuple[int, StopReason]:
    """How many tokens the request may sample, and why it ends there if no stop token comes first."""
    room = max(0, max_context - len(request.prompt))
    if room < request.max_new_tokens:
        return room, StopReason.MAX_CONTEXT
    return request.max_new_tokens, StopReason.MAX_NEW_TOKENS


class SynchronousEngine(ABC):
    """Implements `core.protocols.RolloutEngine` around three methods that compute; blocks while they do."""

    def __init__(self) -> None:
        self._version = 0
        self._paused = False

    async def generate(
        self, requests: Sequence[GenerateRequest], *, timeout_s: float | None = None
    ) -> list[Generation]:
        """One generation for each request, in order.

        Raises `EngineError` for a request it cannot serve and while paused, `DeadlineExceededError` between two steps;
        then no part of the call is kept.
        """
        if self._paused:
            raise EngineError(f"the engine is paused at version {self._version}: resume it before generating")
        capabilities = await self.capabilities()
        for request in requests:
            _check(request, self._vocab_size, capabilities.max_context)
        return self._generate(requests, Deadline(timeout_s))

    async def publish(self, version: int, weights: Path) -> None:
        """Raises `EngineError`, and keeps the weights it has, where the folder does not fit the model."""
        if version < 0:
            raise EngineError(f"a weight version is at least 0, not {version}")
        self._load(weights)
        self._version = version

    async def pause(self, mode: PauseMode) -> None:
        """Refuse requests until `resume`. Raises `EngineError` for a mode other than DRAIN."""
        if mode is not PauseMode.DRAIN:
            raise EngineError(
                f"this engine runs each call to its end: it can be paused by {PauseMode.DRAIN}, not {mode}"
            )
        self._paused = True

    async def resume(self) -> None:
        self._paused = False

    async def close(self) -> None:  # noqa: B027 - nothing is held beyond the object itself
        """Part of the protocol; there is nothing to give back."""

    @abstractmethod
    async def capabilities(self) -> EngineCapabilities: ...

    @abstractmethod
    async def fingerprint(self) -> str: ...

    @property
    @abstractmethod
    def _vocab_size(self) -> int: ...

    @abstractmethod
    def _generate(self, requests: Sequence[GenerateRequest], deadline: Deadline) -> list[Generation]: ...

    @abstractmethod
    def _load(self, folder: Path) -> None: ...


def _check(request: GenerateRequest, vocab_size: int, max_context: int) -> None:
    name, prompt = request.request_id, request.prompt
    if len(prompt) == 0:
        raise EngineError(f"request {name} has an empty prompt: there is nothing to predict from")
    if len(prompt) > max_context:
        raise EngineError(f"request {name} has a prompt of {len(prompt)} tokens; the model's context is {max_context}")
    low, high = int(np.min(prompt)), int(np.max(prompt))
    if low < 0 or high >= vocab_size:
        wrong = low if low < 0 else high
        raise EngineError(f"request {name} has the token id {wrong}; the vocabulary has ids 0 to {vocab_size - 1}")
    if request.max_new_tokens < 0 or not 0.0 <= request.temperature < float("inf"):
        raise EngineError(
            f"request {name} asks for {request.max_new_tokens} tokens at temperature {request.temperature}: "
            "both must be finite and at least 0"
        )
