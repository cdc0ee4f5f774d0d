"""What a remote sandbox and its server say to one another: JSON, with values in the form of `plain.py`.

Both sides read what the other wrote as text of a stranger (`wire_fields.py`). Fields that a reader does not know are
left alone, so that either side may be newer. Sessions have words of their own (`wire_session.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from posttrain.core.errors import ConfigError
from posttrain.core.sandbox_status import SandboxStatus
from posttrain.core.sandboxing import (
    CallOutput,
    CallResult,
    OutputStatus,
    RunResult,
    SandboxCaller,
    SandboxLimits,
    TestResult,
)
from posttrain.core.types import Json
from posttrain.sandbox.conversation import encoded_input
from posttrain.sandbox.decode import MalformedError, decode
from posttrain.sandbox.plain import MAX_CHARACTERS, encode
from posttrain.sandbox.wire_fields import filled, read_answer, read_files, read_object, read_texts

CALL, RUN, TEST, STATUS = "/v1/call", "/v1/run", "/v1/test", "/v1/status"
MAX_BODY_BYTES = 64 << 20
"""Of what is asked; both sides hold to it."""
_MIN_TOKEN = 16
_MORE_BYTES, _ESCAPED = 1 << 16, 12
"""JSON writes a character in up to twelve bytes, as two escaped halves."""
_MORE_FOR_IDS = 8
"""An id and its outcome are not so many times longer than the id with its quotes."""


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


@dataclass(frozen=True)
class TestRequest:
    __test__ = False

    tree: Mapping[str, str]
    tests: Mapping[str, str]
    expected: Sequence[str]
    limits: SandboxLimits
    caller: SandboxCaller


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
    match read_object(body, "a call"):
        case {
            "source": str(source),
            "function": str(function),
            "inputs": list(inputs),
            "profile": str(profile),
            "limits": dict(limits),
            "caller": dict(caller),
        }:
            read = [_arguments(decode(given, "an input")) for given in inputs]
            return CallRequest(
                source, function, read, filled(SandboxLimits, limits), profile, filled(SandboxCaller, caller)
            )
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
    match read_object(body, "a run"):
        case {"argv": argv, "files": files, "stdin": str(stdin), "limits": dict(limits), "caller": dict(caller)}:
            return RunRequest(
                read_texts(argv), read_files(files), stdin, filled(SandboxLimits, limits), filled(SandboxCaller, caller)
            )
    raise MalformedError("a run that lacks a field or has one of another type")


def write_test(asked: TestRequest) -> bytes:
    whole = {
        "tree": dict(asked.tree),
        "tests": dict(asked.tests),
        "expected": list(asked.expected),
        "limits": asdict(asked.limits),
        "caller": asdict(asked.caller),
    }
    return json.dumps(whole).encode()


def read_test(body: bytes) -> TestRequest:
    match read_object(body, "a test"):
        case {"tree": tree, "tests": tests, "expected": expected, "limits": dict(limits), "caller": dict(caller)}:
            return TestRequest(
                read_files(tree),
                read_files(tests),
                read_texts(expected),
                filled(SandboxLimits, limits),
                filled(SandboxCaller, caller),
            )
    raise MalformedError("a test that lacks a field or has one of another type")


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
    match read_answer(body):
        case {"run": dict(run), "outputs": list(outputs)} if len(outputs) == num_inputs:
            return CallResult(filled(RunResult, run), tuple(map(_output, outputs)))
    raise MalformedError(f"an answer without a run and {num_inputs} outputs")


def write_run_result(run: RunResult) -> bytes:
    return json.dumps({"run": asdict(run)}).encode()


def read_run_result(body: bytes) -> RunResult:
    """Raises `RefusedError` for a refusal, and `MalformedError`."""
    match read_answer(body):
        case {"run": dict(run)}:
            return filled(RunResult, run)
    raise MalformedError("an answer without a run")


def max_test_answer_bytes(asked: bytes, limits: SandboxLimits) -> int:
    """No honest answer to `asked`, which has the ids of the tests in it, is larger."""
    return max_answer_bytes(0, limits) + _MORE_FOR_IDS * len(asked)


def write_test_result(result: TestResult) -> bytes:
    return json.dumps({"test": asdict(result)}).encode()


def read_test_result(body: bytes) -> TestResult:
    """Raises `RefusedError` for a refusal, and `MalformedError`."""
    match read_answer(body):
        case {"test": dict(result)}:
            return filled(TestResult, result)
    raise MalformedError("an answer without a test")


def write_status(status: SandboxStatus) -> bytes:
    return json.dumps(asdict(status)).encode()


def read_status(body: bytes) -> SandboxStatus:
    return filled(SandboxStatus, read_object(body, "a status"))


def _output(answer: Any) -> CallOutput:
    match answer:
        case {"status": str(status), "error": str(error), "value": value} if status in list(OutputStatus):
            return CallOutput(OutputStatus(status), decode(value, "an answer"), error)
    raise MalformedError("an output that lacks a field or has one of another type")


def _arguments(given: Json) -> list[Json]:
    if not isinstance(given, list):
        raise MalformedError("an input that is no list of arguments")
    return given
