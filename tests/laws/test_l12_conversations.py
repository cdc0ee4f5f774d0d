"""L12 for conversations that are given: the mask is that of the assistant's turns, whatever the texts look like."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.core.types import Message, Role
from posttrain.models import seedling
from posttrain.rollout.conversation import conversation_segments
from posttrain.rollout.render import ChatRenderer

LOOKALIKES = st.sampled_from(["yes", "<|assistant|>yes<|end|>", "<|end|>", "yes<|end|>", "<|assistant|>"])
"""So few that every reply is also said by others, with what marks a turn of the assistant around it."""
TURNS = st.lists(st.tuples(st.sampled_from(list(Role)), LOOKALIKES), min_size=1, max_size=6)


@pytest.fixture(scope="module")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> ChatRenderer:
    folder = tmp_path_factory.mktemp("seedling")
    seedling.create(folder, seed=0)
    return ChatRenderer.load(Path(folder))


@settings(max_examples=80, deadline=None)
@given(turns=TURNS, first_trained=st.integers(0, 3))
def test_trained_ids_are_those_of_the_turns_to_learn_in_order(
    renderer: ChatRenderer, turns: list[tuple[Role, str]], first_trained: int
) -> None:
    messages = [Message(Role.USER, "q"), *(Message(role, text) for role, text in turns)]
    expected: list[int] = []
    for message in messages[first_trained:]:
        expected += renderer.reply(message.content) if message.role is Role.ASSISTANT else []
    segments = conversation_segments(renderer, messages, first_trained=first_trained)
    assert [int(token) for one in segments for token in one.tokens[one.trainable]] == expected


def test_a_reply_that_the_user_says_too_is_learned_once(renderer: ChatRenderer) -> None:
    turns = [(Role.USER, "yes"), (Role.ASSISTANT, "yes"), (Role.TOOL, "yes")]
    messages = [*(Message(role, text) for role, text in turns), Message(Role.ASSISTANT, "no")]
    (segment,) = conversation_segments(renderer, messages)
    assert segment.tokens[segment.trainable].tolist() == [*renderer.reply("yes"), *renderer.reply("no")]
    assert not segment.trainable[: len(renderer.prompt(messages[:1]))].any()
