"""What a remote sandbox and its server say to one another: JSON, with values in the form of `plain.py`.

Both sides read what the other wrote as text of a stranger: every field has its type, and what is malformed is a
`MalformedError` and nothing else. Fields that a reader does not know are left alone, so that either side may be newer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from pydantic import TypeAdapter, ValidationError

from posttrain.core.errors import ConfigError, SandboxError, UserError
from posttrain.core.sandbox_status import SandboxStatus
from posttrain.core.sandboxing import CallOutput, CallResult, OutputStatus, RunResult, SandboxCaller, SandboxLimits
from posttrain.core.types import Json
from posttrain.sandbox.conversation import encoded_input
from posttrain.sandbox.decode import MalformedError, decode
from posttrain.sandbox.plain import MAX_CHARACTERS, encode

T = TypeVar("T")

CALL, RUN, STATUS = "/v1/call", "/v1/run", "/v1/status"
MAX_BODY_BYTES = 64 << 20
"""Of what is asked; both sides hold to it."""
_MIN_TOKEN = 16
_MORE_BYTES, _ESCAPED = 1 << 16, 12
"""JSON writes a character in up to twelve bytes, as two escaped halves."""


@dataclass(frozen=True)
class CallRequest:
    source: str
    function: str
    inputs: Sequence[Sequence[Json]]
    limits: SandboxLimits
    profile: str
    caller: SandboxCaller


@dataclass(frozen=True)
class RunRequest:
    argv: Sequence[str]
    files: Mapping[str, str]
    stdin: str
    limits: SandboxLimits
    caller: SandboxCaller


class RefusedError(Exception):
    """The server's sandbox raised an error; `error` is one like it."""

    def __init__(self, error: UserError | SandboxError) -> None:
        super().__init__(str(error))
        self.error = error


def read_token(file: Path) -> str:
    """Raises `ConfigError` where there is none, or one that could be guessed."""
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the token file {str(file)!r} of the sandbox cannot be read: {error}") from None
    if not re.fullmatch(rf"[!-~]{{{_MIN_TOKEN},}}", token):
        raise ConfigError(
            f"the token file {str(file)!r} must hold one line of {_MIN_TOKEN} or more printable characters, such as "
            "`openssl rand -hex 32` gives"
        )
    return token


# ── what is asked ─────────────────────────────────────────────────────────────────────────────────────────────


def write_call(asked: CallRequest) -> bytes:
    """Raises `UserError` for inputs that are no plain data."""
    head = {
        "source": asked.source,
        "function": asked.function,
        "profile": asked.profile,
        "limits": asdict(asked.limits),
        "caller": asdict(asked.caller),
    }
    inputs = ",".join(encoded_input(position, arguments) for position, arguments in enumerate(asked.inputs))
    return f'{json.dumps(head)[:-1]},"inputs":[{inputs}]}}'.encode()


def read_call(body: bytes) -> CallRequest:
    match _object(body, "a call"):
        case {
            "source": str(source),
            "function": str(function),
            "inputs": list(inputs),
            "profile": str(profile),
            "limits": dict(limits),
            "caller": dict(caller),
        }:
            read = [_arguments(decode(given, "an input")) for given in inputs]
            return CallRequest(source, function, read, _filled(SandboxLimits, limits), profile, _caller(caller))
    raise MalformedError("a call that lacks a field or has one of another type")


def write_run(asked: RunRequest) -> bytes:
    whole = {
        "argv": list(asked.argv),
        "files": dict(asked.files),
        "stdin": asked.stdin,
        "limits": asdict(asked.limits),
        "caller": asdict(asked.caller),
    }
    return json.dumps(whole).encode()


def read_run(body: bytes) -> RunRequest:
    match _object(body, "a run"):
        case {
            "argv": list(argv),
            "files": dict(files),
            "stdin": str(stdin),
            "limits": dict(limits),
            "caller": dict(caller),
        } if all(isinstance(text, str) for text in (*argv, *files.values())):
            return RunRequest(argv, files, stdin, _filled(SandboxLimits, limits), _caller(caller))
    raise MalformedError("a run that lacks a field or has one of another type")


# ── what is answered ──────────────────────────────────────────────────────────────────────────────────────────


def max_answer_bytes(num_inputs: int, limits: SandboxLimits) -> int:
    """No honest answer is larger."""
    return _MORE_BYTES + num_inputs * (MAX_CHARACTERS + _MORE_BYTES) + _ESCAPED * 1024 * max(0, limits.output_kib)


def write_call_result(result: CallResult) -> bytes:
    outputs = ",".join(
        f'{{"status":"{output.status}","error":{json.dumps(output.error)},"value":{encode(output.value)}}}'
        for output in result.outputs
    )
    return f'{{"run":{json.dumps(asdict(result.run))},"outputs":[{outputs}]}}'.encode()


def read_call_result(body: bytes, num_inputs: int) -> CallResult:
    """Raises `RefusedError` for a refusal, and `MalformedError`."""
    match _answer(body):
        case {"run": dict(run), "outputs": list(outputs)} if len(outputs) == num_inputs:
            return CallResult(_filled(RunResult, run), tuple(map(_output, outputs)))
    raise MalformedError(f"an answer without a run and {num_inputs} outputs")


def write_run_result(run: RunResult) -> bytes:
    return json.dumps({"run": asdict(run)}).encode()


def read_run_result(body: bytes) -> RunResult:
    """Raises `RefusedError` for a refusal, and `MalformedError`."""
    match _answer(body):
        case {"run": dict(run)}:
            return _filled(RunResult, run)
    raise MalformedError("an answer without a run")


def write_refusal(error: UserError | SandboxError) -> bytes:
    refused = "input" if isinstance(error, UserError) else "sandbox"
    return json.dumps({"refused": refused, "message": str(error)}).encode()


def write_status(status: SandboxStatus) -> bytes:
    return json.dumps(asdict(status)).encode()


def read_status(body: bytes) -> SandboxStatus:
    return _filled(SandboxStatus, _object(body, "a status"))


def _answer(body: bytes) -> dict[str, Any]:
    answer = _object(body, "an answer")
    match answer:
        case {"refused": "input", "message": str(message)}:
            raise RefusedError(UserError(message))
        case {"refused": "sandbox", "message": str(message)}:
            raise RefusedError(SandboxError(message))
    return answer


def _output(answer: Any) -> CallOutput:
    match answer:
        case {"status": str(status), "error": str(error), "value": value} if status in list(OutputStatus):
            return CallOutput(OutputStatus(status), decode(value, "an answer"), error)
    raise MalformedError("an output that lacks a field or has one of another type")


# ── fields ────────────────────────────────────────────────────────────────────────────────────────────────────


def _object(body: bytes, what: str) -> dict[str, Any]:
    try:
        read = json.loads(body, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise MalformedError(f"{what} that is no JSON") from None
    if not isinstance(read, dict):
        raise MalformedError(f"{what} that is no JSON object")
    return read


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _arguments(given: Json) -> list[Json]:
    if not isinstance(given, list):
        raise MalformedError("an input that is no list of arguments")
    return given


def _caller(given: dict[str, Any]) -> SandboxCaller:
    return _filled(SandboxCaller, given)


def _filled(record: type[T], given: dict[str, Any]) -> T:
    try:
        read: T = _ADAPTERS[record].validate_python(given)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise MalformedError(f"a {record.__name__} whose {place} is wrong: {first['msg']}") from None
    return read


_ADAPTERS: dict[type[Any], TypeAdapter[Any]] = {
    record: TypeAdapter(record) for record in (SandboxLimits, SandboxCaller, RunResult, SandboxStatus)
}
