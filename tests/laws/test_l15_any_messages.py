"""L15 for any messages: one beginning-of-sequence token whatever is said, none in what is appended, and the length
limit is that of the ids."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.core.errors import ModelError
from posttrain.core.types import Message, Role
from posttrain.models import seedling
from posttrain.models.tokenizer import ChatTokenizer

BOS, BOS_ID = "<|pad|>", 0  # stands in for a beginning-of-sequence token
TURNS = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
TEXTS = st.text(max_size=12) | st.sampled_from([BOS, f"a{BOS}{BOS}b", "<|end|>", "<|assistant|>", " \n"])
MESSAGES = st.lists(st.builds(Message, st.sampled_from(list(Role)), TEXTS), min_size=1, max_size=5)


def write(folder: Path, num_bos: int, *, added_by_the_tokenizer: bool) -> Path:
    """A model folder whose template writes `num_bos` beginning-of-sequence tokens."""
    from tokenizers.processors import TemplateProcessing

    seedling.create(folder, seed=0)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "bos_token": BOS}))
    (folder / "chat_template.jinja").write_text("{{ bos_token }}" * num_bos + TURNS)
    if added_by_the_tokenizer:
        tokenizer = seedling.build_tokenizer()
        tokenizer.post_processor = TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, BOS_ID)])
        tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="module", params=[False, True], ids=["template_alone", "tokenizer_too"])
def chat(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    return ChatTokenizer.load(write(tmp_path_factory.mktemp("model"), 1, added_by_the_tokenizer=request.param))


@settings(max_examples=60, deadline=None)
@given(messages=MESSAGES)
def test_any_prompt_has_one_beginning_and_it_comes_first(chat: ChatTokenizer, messages: list[Message]) -> None:
    ids = chat.prompt_ids(messages)
    assert ids[0] == BOS_ID
    assert ids.count(BOS_ID) == 1


@settings(max_examples=60, deadline=None)
@given(reply=TEXTS, messages=MESSAGES)
def test_nothing_that_is_appended_begins_anew(chat: ChatTokenizer, reply: str, messages: list[Message]) -> None:
    assert BOS_ID not in chat.reply_ids(reply)
    assert BOS_ID not in chat.extend(messages)


@settings(max_examples=60, deadline=None)
@given(messages=MESSAGES, room=st.integers(-3, 3))
def test_the_limit_is_that_of_the_ids_that_are_sent(chat: ChatTokenizer, messages: list[Message], room: int) -> None:
    ids = chat.prompt_ids(messages)
    assert chat.max_context is not None
    new = chat.max_context - len(ids) - room
    if room >= 0:
        chat.require_room(ids, new)
    else:
        with pytest.raises(ModelError, match=f"a prompt of {len(ids)} tokens with up to {new} new ones"):
            chat.require_room(ids, new)


@settings(max_examples=10, deadline=None)
@given(num_bos=st.integers(2, 5), added=st.booleans())
def test_any_number_of_beginnings_above_one_is_refused_at_load(
    tmp_path_factory: pytest.TempPathFactory, num_bos: int, added: bool
) -> None:
    folder = write(tmp_path_factory.mktemp("model"), num_bos, added_by_the_tokenizer=added)
    with pytest.raises(ModelError, match=f"beginning-of-sequence token {num_bos} times"):
        ChatTokenizer.load(folder)
