"""Builders for rollout tests: a renderer whose tokens are characters, and an environment that counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from posttrain.core.protocols import (
    EngineCapabilities,
    GenerateRequest,
    Generation,
    PauseMode,
    Transition,
)
from posttrain.core.types import Limits, Message, Role, Split, StopReason, Task, Verdict

STOP = 0


class CharacterRenderer:
    """One token a character; 0 is the stop token; a turn that follows is written as it is."""

    stop_tokens = (STOP,)

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        return [ord(character) for message in messages for character in message.content + ">"]

    def extend(self, messages: Sequence[Message]) -> list[int]:
        return self.prompt(messages)

    def text(self, tokens: Sequence[int]) -> str:
        return "".join(chr(token) for token in tokens if token != STOP)

    def reply(self, text: str) -> list[int]:
        return [*(ord(character) for character in text), STOP]


@dataclass
class ReplyingEngine:
    """Answers each request with `reply(request)` and a stop token; remembers its batches."""

    reply: Callable[[GenerateRequest], str]
    version: int = 0
    batches: list[list[str]] = field(default_factory=list)

    async def generate(
        self, requests: Sequence[GenerateRequest], *, timeout_s: float | None = None
    ) -> list[Generation]:
        self.batches.append([request.request_id for request in requests])
        return [self._generation(request) for request in requests]

    def _generation(self, request: GenerateRequest) -> Generation:
        tokens = [*(ord(character) for character in self.reply(request)), STOP][: request.max_new_tokens]
        stop = StopReason.STOP if tokens and tokens[-1] == STOP else StopReason.MAX_NEW_TOKENS
        return Generation(
            request.request_id,
            np.asarray(tokens, dtype=np.int32),
            np.full(len(tokens), -0.5, dtype=np.float32),
            np.full(len(tokens), self.version, dtype=np.int32),
            stop,
        )

    async def publish(self, version: int, weights: object) -> None:
        self.version = version

    async def pause(self, mode: PauseMode) -> None: ...

    async def resume(self) -> None: ...

    async def fingerprint(self) -> str:
        return str(self.version)

    async def capabilities(self) -> EngineCapabilities:
        return EngineCapabilities("replying", 1000, "none", (PauseMode.DRAIN,), False)

    async def close(self) -> None: ...


@dataclass
class Dialogue:
    """An environment of `turns` turns: answers "ok" until the last, then judges the last reply."""

    task: Task
    turns: int = 1
    fails_in_turn: int | None = None
    closed: bool = False
    replies: list[str] = field(default_factory=list)

    async def reset(self) -> tuple[Message, ...]:
        return self.task.prompt

    async def step(self, reply: str, *, truncated: bool) -> Transition:
        if self.fails_in_turn == len(self.replies):
            raise RuntimeError("the environment broke")
        self.replies.append(reply)
        if len(self.replies) < self.turns:
            return Transition((Message(Role.USER, "ok"),), done=False)
        right = reply == self.task.hidden["answer"]
        return Transition(verdict=Verdict.correct(answer=reply) if right else Verdict.incorrect("wrong", answer=reply))

    async def close(self) -> None:
        self.closed = True


def make_task(answer: str = "yes", *, max_turns: int = 1, max_new_tokens: int = 8, index: int = 0) -> Task:
    return Task(
        domain="dialogue",
        prompt=(Message(Role.USER, f"q{index}"),),
        hidden={"answer": answer},
        split=Split.TRAIN,
        seed=0,
        index=index,
        level=1,
        limits=Limits(max_new_tokens=max_new_tokens, max_turns=max_turns),
    )


@pytest.fixture
def renderer() -> CharacterRenderer:
    return CharacterRenderer()


@pytest.fixture
def task_maker() -> Callable[..., Task]:
    return make_task


@pytest.fixture
def engine_maker() -> Callable[..., ReplyingEngine]:
    return ReplyingEngine


@pytest.fixture
def dialogue_maker() -> Callable[..., Dialogue]:
    return Dialogue
