"""Law L15: at most one beginning-of-sequence token; templates that will not do are refused at load with the reason;
length limits are checked on the ids that are sent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from posttrain.core.errors import ModelError
from posttrain.core.types import Message, Role
from posttrain.models import seedling
from posttrain.models.tokenizer import ChatTokenizer

BOS = "<|pad|>"  # stands in for a beginning-of-sequence token
GENERATION_PROMPT = "{% if add_generation_prompt %}<|assistant|>{% endif %}"
TURNS = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"


def load(folder: Path, template: str | None, **tokenizer_config: str) -> ChatTokenizer:
    seedling.create(folder, seed=0)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, **tokenizer_config}))
    if template is None:
        (folder / "chat_template.jinja").unlink()
    else:
        (folder / "chat_template.jinja").write_text(template)
    return ChatTokenizer.load(folder)


def num_bos(chat: ChatTokenizer) -> int:
    return chat.prompt_ids([Message(Role.SYSTEM, "s"), Message(Role.USER, "u")]).count(0)


def test_a_prompt_has_the_one_bos_that_its_template_writes(tmp_path: Path) -> None:
    assert num_bos(load(tmp_path, "{{ bos_token }}" + TURNS + GENERATION_PROMPT, bos_token=BOS)) == 1


def test_a_tokenizer_that_adds_a_bos_by_itself_does_not_add_a_second(tmp_path: Path) -> None:
    from tokenizers.processors import TemplateProcessing

    load(tmp_path, "{{ bos_token }}" + TURNS + GENERATION_PROMPT, bos_token=BOS)
    tokenizer = seedling.build_tokenizer()
    tokenizer.post_processor = TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, 0)])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    chat = ChatTokenizer.load(tmp_path)
    assert num_bos(chat) == 1
    assert 0 not in chat.reply_ids("text")
    assert 0 not in chat.extend([Message(Role.USER, "u")])


def test_two_bos_in_a_row_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="beginning-of-sequence token 2 times"):
        load(tmp_path, "{{ bos_token }}{{ bos_token }}" + TURNS + GENERATION_PROMPT, bos_token=BOS)


def test_a_bos_before_every_users_turn_is_refused(tmp_path: Path) -> None:
    turns = TURNS.replace("<|{{", "{% if m.role == 'user' %}{{ bos_token }}{% endif %}<|{{")
    with pytest.raises(ModelError, match="at most one is allowed"):
        load(tmp_path, turns + GENERATION_PROMPT, bos_token=BOS)


def test_a_bos_that_opens_every_message_is_a_mark_of_messages(tmp_path: Path) -> None:
    turns = "{% for m in messages %}{{ bos_token }}{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}"
    prompt = "{% if add_generation_prompt %}{{ bos_token }}assistant\n{% endif %}"
    assert num_bos(load(tmp_path, turns + prompt, bos_token=BOS)) == 3


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (None, "no chat template"),
        ("{% for m in messages %}", "cannot be read"),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages[0].content.__class__.__mro__ }}", "unsafe"),
        (TURNS, "does not support a generation prompt"),
        (GENERATION_PROMPT + TURNS, "does not support a generation prompt"),
        ("{% for m in messages %}<|user|>{{ m.content }}\n{% endfor %}" + GENERATION_PROMPT, "no stop token"),
        (TURNS.replace("m in messages", "m in messages if m.role == 'user'") + GENERATION_PROMPT, "leaves the assist"),
    ],
)
def test_a_template_that_lacks_what_training_needs_is_refused_at_load(
    tmp_path: Path, template: str | None, reason: str
) -> None:
    with pytest.raises(ModelError, match=reason):
        load(tmp_path, template)


def test_a_template_whose_user_turn_ends_where_the_reply_begins_needs_no_generation_prompt(tmp_path: Path) -> None:
    turns = (
        "{% for m in messages %}{% if m.role == 'user' %}<|user|>{{ m.content }}<|assistant|>"
        "{% else %}{{ m.content }}<|end|>{% endif %}{% endfor %}"
    )
    chat = load(tmp_path, turns)
    prompt = chat.prompt_ids([Message(Role.USER, "u")])
    whole = chat.prompt_ids([Message(Role.USER, "u"), Message(Role.ASSISTANT, "r"), Message(Role.USER, "v")])
    assert [*prompt, *chat.reply_ids("r"), *chat.extend([Message(Role.USER, "v")])] == whole


def test_the_length_limit_counts_the_ids_that_are_sent(tmp_path: Path) -> None:
    chat = load(tmp_path, TURNS + GENERATION_PROMPT)
    ids = chat.prompt_ids([Message(Role.USER, "1" * 100)])
    assert chat.max_context == seedling.MAX_CONTEXT
    chat.require_room(ids, seedling.MAX_CONTEXT - len(ids))
    with pytest.raises(ModelError, match=f"{len(ids)} tokens with up to {seedling.MAX_CONTEXT - len(ids) + 1} new"):
        chat.require_room(ids, seedling.MAX_CONTEXT - len(ids) + 1)
