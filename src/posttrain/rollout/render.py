"""Messages ↔ tokens: the one place where the two meet.

Messages are for people, tokens are for machines. A prompt is rendered once, sampled ids are appended as they were
sampled, and what follows a turn is rendered as a continuation in token space (law L11). It samples nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from posttrain.core.types import Message, Role
from posttrain.models.tokenizer import ChatTokenizer


class Renderer(Protocol):
    """What an episode needs of a tokenizer; `ChatRenderer` is the real one."""

    @property
    def stop_tokens(self) -> tuple[int, ...]: ...

    def prompt(self, messages: Sequence[Message]) -> list[int]: ...

    def extend(self, messages: Sequence[Message]) -> list[int]: ...

    def text(self, tokens: Sequence[int]) -> str: ...

    def reply(self, text: str) -> list[int]: ...


@dataclass(frozen=True)
class ChatRenderer:
    """A model's own tokenizer and chat template."""

    tokenizer: ChatTokenizer
    system_prompt: str | None = None
    """Put before prompts that have no system message; None leaves it to the template, which may have its own."""

    @classmethod
    def load(cls, model: Path, system_prompt: str | None = None) -> ChatRenderer:
        return cls(ChatTokenizer.load(model), system_prompt)

    @property
    def stop_tokens(self) -> tuple[int, ...]:
        return tuple(self.tokenizer.stop_tokens)

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """Ids up to where the assistant's reply begins."""
        if self.system_prompt is not None and (not messages or messages[0].role is not Role.SYSTEM):
            messages = [Message(Role.SYSTEM, self.system_prompt), *messages]
        return self.tokenizer.prompt_ids(messages)

    def extend(self, messages: Sequence[Message]) -> list[int]:
        """Ids from behind the assistant's stop token to where its next reply begins."""
        return self.tokenizer.extend(messages)

    def text(self, tokens: Sequence[int]) -> str:
        """Sampled ids as people read them: without the stop token."""
        return self.tokenizer.decode(tokens)

    def reply(self, text: str) -> list[int]:
        """A reply as the policy would sample it, stop token included: demonstrations are made with this."""
        return self.tokenizer.reply_ids(text)
