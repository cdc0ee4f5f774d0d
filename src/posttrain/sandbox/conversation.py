"""The host's half of a call: one input at a time goes in, one answer comes back, and no answer is trusted.

An answer is a line of JSON that repeats the token of the input it answers. Anything else on the channel — an answer
before its input, a second one, one that is no plain data — is a violation: it ends the conversation, and what had not
been answered stays MISSING. A candidate can thus only answer inputs that it was given, and never learns what was
expected. Nothing here waits, reads or writes: `execution.py` moves the bytes.
"""

from __future__ import annotations

import json
import marshal
import secrets
from collections.abc import Sequence
from typing import Any

from posttrain.core.errors import UserError
from posttrain.core.sandboxing import CallOutput, OutputStatus, ResultClass
from posttrain.core.types import Json
from posttrain.sandbox.decode import MalformedError, decode
from posttrain.sandbox.plain import MAX_CHARACTERS, NotPlainError, encode

_MAX_LINE_BYTES = MAX_CHARACTERS + 4096
_LIMITS = {"": None} | {
    name.value: name for name in (ResultClass.MEMORY_LIMIT, ResultClass.DISK_LIMIT, ResultClass.PROCESS_LIMIT)
}


class Conversation:
    """Single-use. `violation` and `load_error` are sentences, empty while all is well."""

    def __init__(self, inputs: Sequence[Sequence[Json]]) -> None:
        self._inputs = [_checked(position, arguments) for position, arguments in enumerate(inputs)]
        self._token = ""
        self._buffer = b""
        self._answered: list[CallOutput] = []
        self.violation = ""
        self.load_error = ""
        self.limit: ResultClass | None = None
        """The last of our limits that an exception in the program spoke of."""

    def next_message(self) -> bytes | None:
        """The next input, framed for `guest.py`; None when all are answered."""
        if len(self._answered) == len(self._inputs):
            self._token = ""
            return None
        self._token = secrets.token_hex(8)
        body = marshal.dumps((self._token, self._inputs[len(self._answered)]))
        return len(body).to_bytes(4, "big") + body

    def feed(self, data: bytes) -> bool:
        """Take what the program wrote; True when it answered the input that was out."""
        if self.violation:
            return False
        self._buffer += data
        line, newline, rest = self._buffer.partition(b"\n")
        if not newline:
            if len(line) > _MAX_LINE_BYTES:
                self.violation = f"protocol violation: an answer of more than {_MAX_LINE_BYTES} bytes"
            return False
        self._buffer = b""
        try:
            if rest:
                raise MalformedError("more than one answer to one input")
            return self._take(line)
        except MalformedError as error:
            self.violation = f"protocol violation: {error}"
            return False

    def outputs(self) -> tuple[CallOutput, ...]:
        """One for each input; those without an answer are MISSING."""
        reason = self.violation or self.load_error or "the program ended before it answered this input"
        num_missing = len(self._inputs) - len(self._answered)
        return (*self._answered, *(CallOutput(OutputStatus.MISSING, error=reason) for _ in range(num_missing)))

    def _take(self, line: bytes) -> bool:
        message = _parse(line)
        limit = message.pop("limit", "")
        if not isinstance(limit, str) or limit not in _LIMITS:
            raise MalformedError("an answer that names an unknown limit")
        match message:
            case {"load_failed": str(text)} if len(message) == 1 and not self._answered and not self.load_error:
                self.load_error = text
                self.limit = _LIMITS[limit]
                return False
            case {"token": str(token), **answer} if token == self._token and token and len(answer) == 1:
                self._answered.append(_output(answer))
                self.limit = _LIMITS[limit] or self.limit
                self._token = ""
                return True
        raise MalformedError("an answer to no input that was asked")


def encoded_input(position: int, arguments: Sequence[Json]) -> str:
    """Raises `UserError` where it is no plain data."""
    try:
        return encode(list(arguments))
    except NotPlainError as error:
        raise UserError(f"input {position} of a sandboxed call is no plain data: {error}") from None


def _checked(position: int, arguments: Sequence[Json]) -> list[Json]:
    encoded_input(position, arguments)
    return list(arguments)


def _parse(line: bytes) -> dict[str, Any]:
    if len(line) > _MAX_LINE_BYTES:
        raise MalformedError(f"an answer of more than {_MAX_LINE_BYTES} bytes")
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        raise MalformedError("an answer that is no JSON") from None
    if not isinstance(message, dict):
        raise MalformedError("an answer that is no JSON object")
    return message


def _output(answer: dict[str, Any]) -> CallOutput:
    match answer:
        case {"value": value}:
            return CallOutput(OutputStatus.VALUE, value=decode(value, "an answer"))
        case {"raised": str(text)}:
            return CallOutput(OutputStatus.RAISED, error=_sentence(text))
        case {"not_plain": str(text)}:
            return CallOutput(OutputStatus.NOT_PLAIN, error=_sentence(text))
    raise MalformedError("an answer of no known kind")


def _sentence(text: str) -> str:
    return text[:1000].encode(errors="replace").decode()
