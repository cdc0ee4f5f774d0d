"""The rows of an SFT stage as samples, and those that are held out: what each source of demonstrations gives.

It knows no source and reads no file.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

from posttrain.core.errors import ModelError
from posttrain.core.types import Message, Sample
from posttrain.learn.samples import demonstration_sample
from posttrain.rollout.conversation import conversation_segments
from posttrain.rollout.render import Renderer


@dataclass(frozen=True)
class Rows:
    """What a stage learns from, or one source's part of it."""

    training: list[Sample]
    validation: list[Sample]
    """Held out: of no conversation and no task that is in `training`."""
    values: dict[str, float] = field(default_factory=dict)
    """What was counted on the way, for the record of the stage's first step."""
    notes: list[str] = field(default_factory=list)
    """What a person should know, a sentence each."""

    def __add__(self, other: Rows) -> Rows:
        return Rows(
            self.training + other.training,
            self.validation + other.validation,
            self.values | other.values,
            self.notes + other.notes,
        )


def conversation_samples(
    renderer: Renderer,
    name: str,
    domain: str,
    messages: Sequence[Message],
    *,
    first_trained: int,
    prompt_loss_weight: float,
) -> list[Sample]:
    """One row's samples: several where the template cannot continue its tokens (`rollout/conversation.py`).

    Raises `ModelError` for what the template cannot render, or, where its prompt is learned, not as one text.
    """
    segments = conversation_segments(renderer, messages, first_trained=first_trained)
    if prompt_loss_weight and len(segments) > 1:
        raise ModelError(
            "the chat template rewrites earlier turns: there is no one text whose prompt could be learned "
            "(prompt_loss_weight)"
        )
    return [
        dataclasses.replace(
            demonstration_sample(name, domain, one.tokens, one.trainable, prompt_loss_weight), segment=number
        )
        for number, one in enumerate(segments)
    ]
