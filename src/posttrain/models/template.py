"""A model's chat template: messages in, text out, rendered as transformers renders it but without transformers.

A template is somebody else's program: it runs in Jinja's immutable sandbox. What it cannot render is a `ModelError`
with the template's own words. It knows no ids and judges no template; `models/tokenizer.py` does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from posttrain.core.errors import ModelError
from posttrain.core.types import Message

# A template that prints today's date would give a task other ids tomorrow; it prints this one.
_TODAY = datetime(2025, 1, 1, tzinfo=UTC)


class ChatTemplate:
    """One compiled template with the special tokens that it may name (`bos_token` and the like)."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        self.source = source
        self._special_tokens = dict(special_tokens)
        try:
            self._template = _environment().from_string(source)
        except jinja2.TemplateError as error:
            raise ModelError(f"the chat template cannot be read: {error}") from error

    @classmethod
    def load(cls, folder: Path, tokenizer_config: Mapping[str, Any]) -> ChatTemplate:
        """From `chat_template.jinja`, or from the entry in `tokenizer_config.json`. Raises `ModelError`."""
        file = folder / "chat_template.jinja"
        source = file.read_text(encoding="utf-8") if file.is_file() else tokenizer_config.get("chat_template")
        if isinstance(source, list):  # several templates by name
            source = {entry["name"]: entry["template"] for entry in source}.get("default")
        if not source:
            raise ModelError(
                f"{folder} has no chat template: it is a base model, or its chat_template.jinja is missing. "
                "Choose an instruction-tuned model or put a chat_template.jinja into the folder."
            )
        return cls(source, special_tokens(tokenizer_config))

    def render(self, messages: Sequence[Message], *, generation_prompt: bool) -> str:
        """The conversation as text, ready for the assistant's reply with `generation_prompt`. Raises `ModelError`."""
        plain = [{"role": message.role.value, "content": message.content} for message in messages]
        try:
            return self._template.render(
                messages=plain,
                add_generation_prompt=generation_prompt,
                tools=None,
                documents=None,
                **self._special_tokens,
            )
        except (jinja2.TemplateError, TypeError) as error:
            roles = ", ".join(message.role for message in messages)
            raise ModelError(f"the chat template cannot render messages by {roles}: {error}") from error


def special_tokens(tokenizer_config: Mapping[str, Any]) -> dict[str, str]:
    """`bos_token`, `eos_token`, … of a `tokenizer_config.json`, whichever of the two forms it writes them in."""
    found = {}
    for key, value in tokenizer_config.items():
        content = value.get("content") if isinstance(value, dict) else value
        if key.endswith("_token") and isinstance(content, str):
            found[key] = content
    return found


class _GenerationTag(jinja2.ext.Extension):
    """Accepts `{% generation %}…{% endgeneration %}` and keeps what is inside; masks come from lengths (law L12)."""

    tags = {"generation"}

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json  # Jinja's own escapes HTML
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = _TODAY.strftime
    return environment


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)
