from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from posttrain.core.errors import ModelError
from posttrain.core.types import Message, Role
from posttrain.models import seedling
from posttrain.rollout.conversation import Segment, conversation_segments
from posttrain.rollout.render import ChatRenderer, Renderer

THINKING_DROPPED = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content.split('</think>')[-1] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
NO_TOOLS = "{% if messages[-1].role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}" + seedling.TEMPLATE


def make_renderer(folder: Path, template: str = seedling.TEMPLATE, system_prompt: str | None = None) -> ChatRenderer:
    seedling.create(folder, seed=0)
    (folder / "chat_template.jinja").write_text(template)
    return ChatRenderer.load(folder, system_prompt)


def said(*texts: str, first: Role = Role.USER) -> list[Message]:
    """User and assistant in turn."""
    roles = [first, Role.ASSISTANT if first is Role.USER else Role.USER]
    return [Message(roles[number % 2], text) for number, text in enumerate(texts)]


def trained_text(renderer: Renderer, segment: Segment) -> str:
    return renderer.text(segment.tokens[segment.trainable].tolist())


def test_one_turn_is_its_prompt_and_then_its_reply(renderer: Renderer) -> None:
    (segment,) = conversation_segments(renderer, said("q", "yes"))
    assert segment.tokens.tolist() == [*renderer.prompt(said("q")), *renderer.reply("yes")]
    assert segment.trainable.tolist() == [False, False, True, True, True, True]


def test_turns_are_appended_and_only_the_assistants_are_learned(renderer: Renderer) -> None:
    (segment,) = conversation_segments(renderer, said("q", "yes", "r", "no"))
    assert trained_text(renderer, segment) == "yesno"
    assert segment.tokens.tolist()[6:] == [*renderer.extend(said("r")), *renderer.reply("no")]


def test_replies_before_the_first_turn_to_learn_are_prompt(renderer: Renderer) -> None:
    messages = said("q", "yes", "r", "no")
    (segment,) = conversation_segments(renderer, messages, first_trained=2)
    assert trained_text(renderer, segment) == "no"
    assert segment.tokens.tolist() == [*renderer.prompt(messages[:3]), *renderer.reply("no")]


def test_what_follows_the_last_reply_is_left_out(renderer: Renderer) -> None:
    (longer,) = conversation_segments(renderer, said("q", "yes", "thanks"))
    (segment,) = conversation_segments(renderer, said("q", "yes"))
    np.testing.assert_array_equal(longer.tokens, segment.tokens)


def test_the_runs_system_prompt_is_that_of_rollouts(tmp_path: Path) -> None:
    renderer = make_renderer(tmp_path, system_prompt="Be short.")
    (segment,) = conversation_segments(renderer, said("q", "yes"))
    assert renderer.text(segment.tokens.tolist()) == "Be short.qyes"


def test_a_conversation_splits_where_the_template_rewrites_earlier_turns(tmp_path: Path) -> None:
    renderer = make_renderer(tmp_path, THINKING_DROPPED)
    messages = said("q", "<think>hm</think>yes", "r", "no", "s", "so")
    segments = conversation_segments(renderer, messages)
    assert [trained_text(renderer, one) for one in segments] == [
        "<think>hm</think>yes",
        "no",
        "so",
    ]
    for segment, end in zip(segments, (1, 3, 5), strict=True):
        prompt = renderer.prompt(messages[:end])
        assert segment.tokens[: len(prompt)].tolist() == prompt
        assert segment.trainable.tolist() == [False] * len(prompt) + [True] * (len(segment.tokens) - len(prompt))
    assert "hm" not in renderer.text(segments[1].tokens.tolist())


def test_messages_that_the_template_cannot_render_are_refused(tmp_path: Path) -> None:
    messages = [*said("q", "yes"), Message(Role.TOOL, "3"), Message(Role.ASSISTANT, "no")]
    with pytest.raises(ModelError, match="no tools"):
        conversation_segments(make_renderer(tmp_path, NO_TOOLS), messages)
