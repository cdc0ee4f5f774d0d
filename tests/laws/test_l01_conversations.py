"""L1 for conversations that are given: turns that others said between the trained ones do not tie the gradient to the
layout, whether the conversation stays one stream or splits."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from tests.learn.parts import (
    SUPERVISED,
    VOCABULARY,
    gradient,
    norm_in_its_own_dtype,
    watching_trainer,
    write_tiny_model,
)

from posttrain.core.errors import ModelError
from posttrain.core.types import Message, Role, Sample
from posttrain.learn.layout import LayoutOptions
from posttrain.run.rows import conversation_samples

torch.set_num_threads(1)

LAYOUTS = {
    "packed": LayoutOptions(micro_batch_tokens=4096, row_tokens=128, hidden_size=16),
    "many_micro_batches": LayoutOptions(micro_batch_tokens=24, row_tokens=24, hidden_size=16),
    "computed": LayoutOptions(micro_batch_tokens=64, row_tokens=0, hidden_size=16),
}
ONE_BY_ONE = LayoutOptions(micro_batch_tokens=1, row_tokens=1, hidden_size=16)


class Letters:
    """A renderer whose tokens are letters; what a turn adds can be appended unless it says "new"."""

    stop_tokens = (0,)

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        return [1, *(2 + ord(letter) % (VOCABULARY - 2) for message in messages for letter in message.content)]

    def extend(self, messages: Sequence[Message]) -> list[int]:
        if any(message.content == "new" for message in messages):
            raise ModelError("the template begins anew")
        return self.prompt(messages)

    def text(self, tokens: Sequence[int]) -> str:
        raise NotImplementedError

    def reply(self, text: str) -> list[int]:
        return [*self.prompt([Message(Role.ASSISTANT, text)])[1:], 0]


def conversation(name: str, *texts: str) -> list[Sample]:
    """User and assistant in turn."""
    messages = [Message((Role.USER, Role.ASSISTANT)[place % 2], text) for place, text in enumerate(texts)]
    return conversation_samples(Letters(), name, "data", messages, first_trained=0, prompt_loss_weight=0.0)


@pytest.mark.parametrize("name", LAYOUTS)
def test_gradient_of_conversations_does_not_depend_on_layout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("transformers.models.llama.modeling_llama.LlamaRMSNorm.forward", norm_in_its_own_dtype)
    trainer = watching_trainer(write_tiny_model(tmp_path), SUPERVISED)
    samples = [
        *conversation("a", "hello", "yes", "and then", "no", "so", "well"),
        *conversation("b", "hello", "yes"),
        *conversation("c", "what", "this", "new", "that", "more", "rest"),
    ]
    assert [(one.trajectory_id, one.segment) for one in samples] == [("a", 0), ("b", 0), ("c", 0), ("c", 1)]
    expected = gradient(trainer, samples, ONE_BY_ONE)
    assert expected.abs().max() > 1e-3
    assert (gradient(trainer, samples, LAYOUTS[name]) - expected).abs().max() < 1e-10
    alone = [dataclasses.replace(one, group_id=f"alone-{place}") for place, one in enumerate(samples)]
    assert (gradient(trainer, alone, LAYOUTS[name]) - expected).abs().max() < 1e-10
