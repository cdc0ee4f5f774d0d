"""Messages ↔ ids through a model's own tokenizer and chat template, without torch or transformers.

What training needs of a template is checked when it is loaded (law L15). Control tokens written in a message or a
reply are encoded as the characters they are: text cannot end a turn or forge one. It samples and truncates nothing.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from posttrain.core.errors import ModelError
from posttrain.core.types import Message, Role
from posttrain.models.template import ChatTemplate, special_tokens

_PROBE = Message(Role.USER, "question")
_PLAIN_REPLY = "reply"
_REASONING_REPLY = "<think>\nthought\n</think>\n\nreply"  # some templates drop it from earlier turns
_OPEN, _CLOSE = "\ue000", "\ue001"  # around a control token in a message, while the template renders it


class ChatTokenizer:
    """Tokenizer and template of one model folder; `load` makes one."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: ChatTemplate,
        *,
        bos: int | None,
        eos: Sequence[int],
        pad: int | None,
        max_context: int | None = None,
    ) -> None:
        """Takes the tokenizer over. Raises `ModelError` with the reason where the template will not do."""
        self._tokenizer = tokenizer
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()  # a limit stored in tokenizer.json would cut prompts silently
        self._literal = Tokenizer.from_str(tokenizer.to_str())
        self._literal.encode_special_tokens = True
        added = tokenizer.get_added_tokens_decoder()
        controls = sorted((token.content for token in added.values() if token.special), key=len, reverse=True)
        self._control = re.compile("|".join(map(re.escape, controls)) or r"(?!)")
        self._template = template
        _require_generation_prompt(template)
        stop = self._find_stop_token(set(added))
        self._refuse_repeated_bos(bos)
        self.stop_tokens: tuple[int, ...] = tuple(dict.fromkeys([stop, *eos]))
        """Ids that end a reply, the one that the template writes first."""
        self.pad: int = stop if pad is None else pad
        """May equal a stop token: masks come from lengths, never from looking for this id (law L12)."""
        self.max_context = max_context
        """Positions that the model was made for; None where its configuration does not say."""

    @classmethod
    def load(cls, folder: Path) -> ChatTokenizer:
        """From a Hugging Face folder with a `tokenizer.json`. Raises `ModelError` with the reason."""
        file = folder / "tokenizer.json"
        if not file.is_file():
            raise ModelError(f"{folder} has no tokenizer.json; only models with one are supported")
        tokenizer = Tokenizer.from_file(str(file))
        settings = _read_json(folder / "tokenizer_config.json")
        config, generation = _read_json(folder / "config.json"), _read_json(folder / "generation_config.json")
        num_embeddings = config.get("vocab_size")
        if num_embeddings is not None and tokenizer.get_vocab_size() > num_embeddings:
            raise ModelError(
                f"the tokenizer in {folder} has {tokenizer.get_vocab_size()} tokens, its model only {num_embeddings}"
            )
        names = special_tokens(settings)
        eos = [*_id_list(generation.get("eos_token_id")), *_id_list(config.get("eos_token_id"))]
        eos += _id_list(tokenizer.token_to_id(names["eos_token"]) if "eos_token" in names else None)
        try:
            return cls(
                tokenizer,
                ChatTemplate.load(folder, settings),
                bos=tokenizer.token_to_id(names["bos_token"]) if "bos_token" in names else None,
                eos=eos,
                pad=tokenizer.token_to_id(names["pad_token"]) if "pad_token" in names else None,
                max_context=config.get("max_position_embeddings"),
            )
        except ModelError as error:
            raise ModelError(f"the model in {folder} cannot be trained: {error}") from error

    @property
    def vocab_size(self) -> int:
        """Tokens that the tokenizer knows; the model may have more rows."""
        return self._tokenizer.get_vocab_size()

    def prompt_ids(self, messages: Sequence[Message]) -> list[int]:
        """Ids up to where the assistant's reply begins.

        A template's default system prompt comes with it, unless the first message is by `Role.SYSTEM` (empty will do).
        """
        return self._render_ids(messages)

    def reply_ids(self, text: str) -> list[int]:
        """A reply as the policy would sample it behind a prompt, stop token included."""
        return [*self._literal.encode(text, add_special_tokens=False).ids, self.stop_tokens[0]]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of `ids` without special tokens; bytes that are no UTF-8 become U+FFFD."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=True)

    def extend(self, messages: Sequence[Message]) -> list[int]:
        """Ids that lead from behind an assistant's stop token, over `messages`, to where its next reply begins.

        Found by rendering stand-in conversations with and without them. Raises `ModelError` where the template
        rewrites what came before, so that a conversation cannot be continued in token space (law L11): split there.
        """
        plain = self._continuation(messages, _PLAIN_REPLY)
        if plain is None or plain != self._continuation(messages, _REASONING_REPLY):
            raise ModelError(
                "the chat template rewrites earlier turns when the conversation goes on: its next turn "
                "cannot be appended to the ids before it and has to be rendered anew"
            )
        return plain

    def require_room(self, prompt: Sequence[int], max_new_tokens: int) -> None:
        """Raise `ModelError` where the ids that will be sent and a full reply exceed the model's context (law L15)."""
        if self.max_context is not None and len(prompt) + max_new_tokens > self.max_context:
            raise ModelError(
                f"a prompt of {len(prompt)} tokens with up to {max_new_tokens} new ones "
                f"exceeds the model's context of {self.max_context} tokens"
            )

    def _render_ids(self, messages: Sequence[Message], *, generation_prompt: bool = True) -> list[int]:
        marked = [replace(message, content=self._mark(message.content)) for message in messages]
        if marked == list(messages):
            return self._encode(self._template.render(messages, generation_prompt=generation_prompt))
        rendered = self._template.render(marked, generation_prompt=generation_prompt)
        ids: list[int] = []
        for index, piece in enumerate(re.split(f"[{_OPEN}{_CLOSE}]", rendered)):
            ids += self._literal.encode(piece, add_special_tokens=False).ids if index % 2 else self._encode(piece)
        return ids

    def _mark(self, content: str) -> str:
        if not self._control.search(content):
            return content
        return self._control.sub(rf"{_OPEN}\g<0>{_CLOSE}", re.sub(f"[{_OPEN}{_CLOSE}]", "", content))

    def _encode(self, text: str) -> list[int]:
        # The template writes the beginning-of-sequence token where there is one; the tokenizer must not add another.
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    @cached_property
    def _opening(self) -> str:
        return self._template.render([_PROBE], generation_prompt=True)

    def _continuation(self, messages: Sequence[Message], reply: str) -> list[int] | None:
        stop_text = self._tokenizer.id_to_token(self.stop_tokens[0])
        prefix = self._encode(f"{self._opening}{reply}{stop_text}")
        whole = self._render_ids([_PROBE, Message(Role.ASSISTANT, reply), *messages])
        return whole[len(prefix) :] if whole[: len(prefix)] == prefix else None

    def _find_stop_token(self, added: set[int]) -> int:
        turn = [_PROBE, Message(Role.ASSISTANT, _PLAIN_REPLY)]
        rendered = self._template.render(turn, generation_prompt=False)
        _, found, tail = rendered.rpartition(_PLAIN_REPLY)
        if not found:
            raise ModelError("its chat template leaves the assistant's reply out")
        ids = self._encode(tail.lstrip())
        if not ids or ids[0] not in added:
            raise ModelError(
                "its chat template has no stop token: nothing special follows an assistant's reply, "
                "so that a policy could not learn to end one"
            )
        return ids[0]

    def _refuse_repeated_bos(self, bos: int | None) -> None:
        if bos is None:
            return
        short = self._render_ids([_PROBE])
        long = self._render_ids([_PROBE, Message(Role.ASSISTANT, _PLAIN_REPLY), _PROBE])
        doubled = any(pair == (bos, bos) for pair in itertools.pairwise(short))
        # Where bos opens every message (ChatML of some models), it is no beginning-of-sequence token in use.
        opens_messages = long.count(bos) - short.count(bos) == 2
        if doubled or (max(short.count(bos), long.count(bos)) > 1 and not opens_messages):
            raise ModelError(
                f"its chat template writes the beginning-of-sequence token {long.count(bos)} times into one "
                "conversation; at most one is allowed"
            )


def _require_generation_prompt(template: ChatTemplate) -> None:
    closed = template.render([_PROBE], generation_prompt=False)
    opened = template.render([_PROBE], generation_prompt=True)
    if opened != closed and opened.startswith(closed):
        return
    turn = template.render([_PROBE, Message(Role.ASSISTANT, _PLAIN_REPLY)], generation_prompt=False)
    if opened == closed and turn.startswith(opened) and turn[len(opened) :].lstrip().startswith(_PLAIN_REPLY):
        return  # the user's message itself ends where the reply begins
    raise ModelError(
        "its chat template does not support a generation prompt (add_generation_prompt): "
        "one cannot tell where the assistant's reply begins"
    )


def _read_json(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{file} is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{file} holds no JSON object")
    return content


def _id_list(value: int | list[int] | None) -> list[int]:
    if value is None:
        return []
    return list(value) if isinstance(value, list) else [value]
