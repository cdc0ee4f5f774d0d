"""Fields of what comes over the wire, read as text of a stranger: each has its type, and what is malformed is a
`MalformedError` and nothing else. What a sandbox refuses travels as an answer, too.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn, TypeVar

from pydantic import TypeAdapter, ValidationError

from posttrain.core.errors import SandboxError, UserError
from posttrain.core.sandbox_status import SandboxStatus
from posttrain.core.sandboxing import CellResult, RunResult, SandboxCaller, SandboxLimits, TestResult
from posttrain.sandbox.decode import MalformedError

T = TypeVar("T")


class RefusedError(Exception):
    """The server's sandbox raised an error; `error` is one like it."""

    def __init__(self, error: UserError | SandboxError) -> None:
        super().__init__(str(error))
        self.error = error


def write_refusal(error: UserError | SandboxError) -> bytes:
    refused = "input" if isinstance(error, UserError) else "sandbox"
    return json.dumps({"refused": refused, "message": str(error)}).encode()


def read_answer(body: bytes) -> dict[str, Any]:
    """Raises `RefusedError` for a refusal."""
    answer = read_object(body, "an answer")
    match answer:
        case {"refused": "input", "message": str(message)}:
            raise RefusedError(UserError(message))
        case {"refused": "sandbox", "message": str(message)}:
            raise RefusedError(SandboxError(message))
    return answer


def read_object(body: bytes, what: str) -> dict[str, Any]:
    """`what` it is called in a sentence."""
    try:
        read = json.loads(body, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise MalformedError(f"{what} that is no JSON") from None
    if not isinstance(read, dict):
        raise MalformedError(f"{what} that is no JSON object")
    return read


def filled(record: type[T], given: Any) -> T:
    """The record whose fields `asdict` gave."""
    try:
        read: T = _ADAPTERS[record].validate_python(given)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise MalformedError(f"a {record.__name__} whose {place} is wrong: {first['msg']}") from None
    return read


def read_files(given: Any) -> dict[str, str]:
    if not isinstance(given, dict) or not all(isinstance(content, str) for content in given.values()):
        raise MalformedError("files that are no texts by name")
    return given


def read_texts(given: Any) -> list[str]:
    if not isinstance(given, list) or not all(isinstance(text, str) for text in given):
        raise MalformedError("texts that are no list of them")
    return given


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


_ADAPTERS: dict[type[Any], TypeAdapter[Any]] = {
    record: TypeAdapter(record)
    for record in (SandboxLimits, SandboxCaller, RunResult, CellResult, TestResult, SandboxStatus)
}
