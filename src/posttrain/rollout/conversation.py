"""A conversation that is given, not sampled → the token streams that rolling it out would have produced.

Prompt, reply and continuation are appended as an episode appends them (laws L11, L13), and the mask comes from what
was appended (law L12). Nothing is cut: how long a segment may be is the caller's affair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from posttrain.core.errors import ModelError
from posttrain.core.stream import TokenStream
from posttrain.core.types import BoolArray, IntArray, Message, Role
from posttrain.rollout.render import Renderer


@dataclass(frozen=True)
class Segment:
    """One append-only stretch of a conversation."""

    tokens: IntArray  # [T]
    trainable: BoolArray  # [T], True on the assistant's turns to learn, their stop tokens included


def conversation_segments(
    renderer: Renderer, messages: Sequence[Message], *, first_trained: int = 0
) -> tuple[Segment, ...]:
    """The segments of a conversation whose assistant turns from message `first_trained` on are to be learned.

    Usually one. Where the template cannot continue the ids before a turn, a new segment begins there, with all that
    came before rendered as its prompt (law L11): what the policy would see then. Every turn is trained once. Messages
    behind the last assistant turn teach nothing and are left out. Raises `ModelError` for messages that the template
    cannot render.
    """
    streams: list[TokenStream] = []
    end = 0
    for place in range(first_trained, len(messages)):
        if messages[place].role is not Role.ASSISTANT:
            continue
        continuation = _continuation(renderer, messages[end:place]) if streams else None
        if continuation is None:
            streams.append(TokenStream())
            continuation = renderer.prompt(messages[:place])
        streams[-1].observe(continuation)
        reply = renderer.reply(messages[place].content)
        streams[-1].sample(reply, [0.0] * len(reply), [0] * len(reply))  # the mask is what is wanted of it
        end = place + 1
    return tuple(Segment(stream.tokens(), stream.sampled()) for stream in streams)


def _continuation(renderer: Renderer, messages: Sequence[Message]) -> list[int] | None:
    try:
        return renderer.extend(messages)
    except ModelError:
        return None
