"""Rows for supervised fine-tuning, from JSONL and Parquet files, in either of two shapes:

    {"messages": [{"role": …, "content": …}, …]}                      every assistant turn is to be learned
    {"prompt": text or messages, "completion": text or messages}      the completion's are; "response" means the same

Other keys are not looked at, and a key that is null counts as absent. A row that cannot be used is returned with its
place and the reason; how many of those are too many is the caller's to say. It renders no tokens, and it does not see
whether a row repeats an evaluation task: tasks are told apart by their domain's content, which a text does not show.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from posttrain.core.errors import UserError
from posttrain.core.types import Json, Message, Role
from posttrain.store.json_lines import UnusableRowError, json_object, lines, short

SUFFIXES = (".jsonl", ".parquet")
_KEYS = ("messages", "prompt", "completion", "response")


@dataclass(frozen=True)
class SftRow:
    """One conversation."""

    place: str
    """File and line, or file and row; both count from 1."""
    messages: tuple[Message, ...]
    first_trained: int
    """Assistant turns from this message on are to be learned; earlier ones are history."""


@dataclass(frozen=True)
class BadRow:
    """A row that cannot be used."""

    place: str
    reason: str

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


def data_files(patterns: Sequence[str]) -> list[Path]:
    """The files behind paths and globs (`**` goes into folders), each once, those of one glob by name.

    Raises `UserError` for a pattern without a file, and for a file of another kind than `SUFFIXES`.
    """
    found: dict[Path, None] = {}
    for pattern in patterns:
        path = Path(pattern)
        files = [path] if path.is_file() else _glob(path)
        if not files:
            raise UserError(f"there is no file {pattern!r} to learn from")
        found.update(dict.fromkeys(files))
    for path in found:
        if path.suffix not in SUFFIXES:
            raise UserError(f"rows are read from {' and '.join(SUFFIXES)} files, which {path} is not")
    return list(found)


def read_rows(paths: Iterable[Path]) -> Iterator[SftRow | BadRow]:
    """Every row of every file, in order; a blank line of a JSONL file is no row.

    Raises `UserError` for a file that cannot be read at all.
    """
    for path in paths:
        for place, raw in lines(path) if path.suffix == ".jsonl" else _table_rows(path):
            try:
                yield _row(place, raw)
            except UnusableRowError as error:
                yield BadRow(place, str(error))


def _glob(path: Path) -> list[Path]:
    base = Path(path.anchor)
    try:
        return sorted(file for file in base.glob(str(path.relative_to(base))) if file.is_file())
    except (ValueError, IndexError) as error:
        raise UserError(f"{str(path)!r} is no pattern of files: {error}") from None


def _table_rows(path: Path) -> Iterator[tuple[str, Mapping[str, Json]]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            columns = [name for name in file.schema_arrow.names if name in _KEYS]
            number = 0
            for batch in file.iter_batches(batch_size=1024, columns=columns):
                for row in batch.to_pylist() if columns else [{}] * batch.num_rows:
                    number += 1
                    yield f"{path}, row {number}", row
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read as Parquet: {error}") from error


def _row(place: str, raw: bytes | Mapping[str, Json]) -> SftRow:
    content = json_object(raw) if isinstance(raw, bytes) else raw
    found = {key: content[key] for key in _KEYS if content.get(key) is not None}
    context: tuple[Message, ...] = ()
    match sorted(found):
        case ["messages"]:
            learned = _messages(found["messages"], Role.USER)
        case ["completion" as reply, "prompt"] | ["prompt", "response" as reply]:
            context, learned = _messages(found["prompt"], Role.USER), _messages(found[reply], Role.ASSISTANT)
            if context[-1].role is Role.ASSISTANT:
                raise UnusableRowError("the prompt ends with a turn of the assistant")
        case keys:
            raise UnusableRowError(
                "it has neither 'messages' alone nor 'prompt' with 'completion' or 'response', but "
                + (", ".join(map(repr, keys)) or "none of them")
            )
    _check_turns(context, learned)
    return SftRow(place, (*context, *learned), first_trained=len(context))


def _messages(content: Json, role: Role) -> tuple[Message, ...]:
    """A list of messages, or a text said by `role`."""
    if isinstance(content, str):
        return (Message(role, _text(content)),)
    if not isinstance(content, list) or not content:
        raise UnusableRowError(f"messages are a list with at least one message, not {short(content)}")
    return tuple(_message(number, item) for number, item in enumerate(content, start=1))


def _message(number: int, item: Json) -> Message:
    if not isinstance(item, dict):
        raise UnusableRowError(f"message {number} is no object with role and content: {short(item)}")
    role, content = item.get("role"), item.get("content")
    if role not in list(Role):
        raise UnusableRowError(f"message {number} has the unknown role {short(role)} (known: {', '.join(Role)})")
    if item.get("tool_calls"):
        raise UnusableRowError(f"message {number} has tool calls beside its text, which no template is given")
    if not isinstance(content, str):
        raise UnusableRowError(f"the content of message {number} is not text: {short(content)}")
    return Message(Role(role), _text(content))


def _text(content: str) -> str:
    try:
        content.encode()
    except UnicodeEncodeError:
        raise UnusableRowError("its text holds half of a surrogate pair, which is no character") from None
    return content


def _check_turns(context: Sequence[Message], learned: Sequence[Message]) -> None:
    turns = [message for message in learned if message.role is Role.ASSISTANT]
    if not turns:
        raise UnusableRowError("it has no turn of the assistant to learn")
    if not context and learned[0].role is Role.ASSISTANT:
        raise UnusableRowError("it begins with the assistant: there is nothing to reply to")
    for number, turn in enumerate(turns, start=1):
        if not turn.content.strip():
            raise UnusableRowError(f"the assistant's reply {number} of {len(turns)} is empty")
