"""Builders for verifier tests: a sandbox that gives the results it was told to give."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from posttrain.core.protocols import SandboxSession
from posttrain.core.sandboxing import SESSION_LIMITS, CallResult, IsolationTier, RunResult, SandboxLimits, TestResult
from posttrain.core.types import Json


@dataclass
class ToldSandbox:
    """Answers each call with the next of `results`, the last one for ever; raises what is an exception."""

    results: list[CallResult | Exception] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    gate: asyncio.Event | None = None
    """Holds every call until it is set."""
    cancelled: int = 0

    tier = IsolationTier.SCRIPTED.value

    async def call(
        self,
        source: str,
        function: str,
        inputs: Sequence[Sequence[Json]],
        *,
        limits: SandboxLimits,
        profile: str = "python",
    ) -> CallResult:
        self.sources.append(source)
        result = self.results[min(len(self.sources), len(self.results)) - 1]
        if self.gate is not None:
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        if isinstance(result, Exception):
            raise result
        return result

    async def run(
        self, argv: Sequence[str], *, files: Mapping[str, str] | None = None, stdin: str = "", limits: SandboxLimits
    ) -> RunResult:
        raise NotImplementedError

    async def test(
        self, tree: Mapping[str, str], tests: Mapping[str, str], expected: Sequence[str], *, limits: SandboxLimits
    ) -> TestResult:
        raise NotImplementedError

    async def session(
        self, tree: Mapping[str, str], *, limits: SandboxLimits = SESSION_LIMITS, background: bool = False
    ) -> SandboxSession:
        raise NotImplementedError

    async def close(self) -> None:
        return None


@pytest.fixture
def told_sandbox() -> ToldSandbox:
    return ToldSandbox()
