"""L13 for conversations that are given: the stop token behind every turn of the assistant is learned, and no other."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.core.types import Message, Role
from posttrain.models import seedling
from posttrain.rollout.conversation import conversation_segments
from posttrain.rollout.render import ChatRenderer


def test_every_turns_stop_token_is_learned_and_that_of_no_other_message(tmp_path: Path) -> None:
    seedling.create(tmp_path, seed=0)
    renderer = ChatRenderer.load(tmp_path)
    stop = renderer.stop_tokens[0]

    @settings(max_examples=30, deadline=None)
    @given(replies=st.lists(st.text(max_size=8), min_size=1, max_size=5))
    def check(replies: list[str]) -> None:
        messages = [m for reply in replies for m in (Message(Role.USER, "q"), Message(Role.ASSISTANT, reply))]
        (segment,) = conversation_segments(renderer, messages)
        ends = segment.tokens == stop
        assert int(ends.sum()) == 2 * len(replies)  # the template ends the user's messages with the same token
        assert int((ends & segment.trainable).sum()) == len(replies)
        assert segment.trainable[-1]
        assert segment.tokens[-1] == stop

    check()
