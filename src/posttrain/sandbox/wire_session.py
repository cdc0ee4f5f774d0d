"""What a remote session and its server say to one another: an opening, verbs, signs that the client lives, and the end.

`VERBS` is the whole list of what a session can be asked for: a new verb is one more entry here, and one more method of
`RemoteSession`. The server finds the method of its session by the verb's name.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from posttrain.core.sandboxing import CellResult, RunResult, SandboxCaller, SandboxLimits, TestResult
from posttrain.sandbox.decode import MalformedError
from posttrain.sandbox.order import MIB
from posttrain.sandbox.wire import max_test_answer_bytes
from posttrain.sandbox.wire_fields import filled, read_answer, read_files, read_object, read_texts

T = TypeVar("T")

OPEN, VERB, RENEW, CLOSE = "/v1/session/open", "/v1/session/verb", "/v1/session/renew", "/v1/session/close"
SESSION_PATHS = (OPEN, VERB, RENEW, CLOSE)
MAX_SHORT_ANSWER_BYTES = 1 << 16
"""Of one that is no verb's."""


@dataclass(frozen=True)
class Form(Generic[T]):
    """How a value travels: `write` makes JSON of it, and `read` raises `MalformedError`."""

    write: Callable[[T], Any]
    read: Callable[[Any], T]


@dataclass(frozen=True)
class Verb(Generic[T]):
    """A method of `SandboxSession`: its name, its parameters and what it gives."""

    name: str
    parameters: Mapping[str, Form[Any]]
    answer: Form[T]
    repeatable: bool = False
    """It changes nothing, so that it may be done again for one who did not hear the answer, which may be large."""


@dataclass(frozen=True)
class OpenRequest:
    tree: Mapping[str, str]
    limits: SandboxLimits
    background: bool
    caller: SandboxCaller


@dataclass(frozen=True)
class Opened:
    session: str
    """A name that nobody can guess."""
    lease_s: float
    """Without a sign of life for so long, the session is closed."""


@dataclass(frozen=True)
class VerbRequest:
    session: str
    number: int
    """From 1 on, and larger for each verb of the session; one who asks again keeps it."""
    verb: Verb[Any]
    arguments: Mapping[str, Any]


# ── the verbs ─────────────────────────────────────────────────────────────────────────────────────────────────


def _text(given: Any) -> str:
    if not isinstance(given, str):
        raise MalformedError("a text that is none")
    return given


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _bytes(given: Any) -> bytes:
    try:
        return base64.b64decode(_text(given), validate=True)
    except (binascii.Error, ValueError):
        raise MalformedError("content that is no base64") from None


def _write_changes(changes: Mapping[str, bytes | None]) -> dict[str, str | None]:
    return {path: None if content is None else _encoded(content) for path, content in changes.items()}


def _changes(given: Any) -> dict[str, bytes | None]:
    if not isinstance(given, dict):
        raise MalformedError("changes that are no content by path")
    return {path: None if content is None else _bytes(content) for path, content in given.items()}


def _opened(given: Any) -> Opened:
    match given:
        case {"session": str(session), "lease_s": int(lease_s) | float(lease_s)} if lease_s > 0:
            return Opened(session, lease_s)
    raise MalformedError("an opening without a name and a lease")


def _nothing(given: Any) -> None:
    if given is not None:
        raise MalformedError("something where nothing was to be said")


_NOTHING: Form[None] = Form(_nothing, _nothing)
_TEXT: Form[str] = Form(str, _text)
_TEXTS: Form[list[str]] = Form(list, read_texts)
_BYTES: Form[bytes] = Form(_encoded, _bytes)
_FILES: Form[dict[str, str]] = Form(dict, read_files)
_CHANGES: Form[dict[str, bytes | None]] = Form(_write_changes, _changes)
_LIMITS: Form[SandboxLimits] = Form(asdict, partial(filled, SandboxLimits))
_RUN: Form[RunResult] = Form(asdict, partial(filled, RunResult))
_CELL: Form[CellResult] = Form(asdict, partial(filled, CellResult))
_TESTS: Form[TestResult] = Form(asdict, partial(filled, TestResult))
_OPENED: Form[Opened] = Form(asdict, _opened)

EXEC = Verb("exec", {"argv": _TEXTS, "stdin": _TEXT, "limits": _LIMITS}, _RUN)
CELL = Verb("cell", {"code": _TEXT, "limits": _LIMITS}, _CELL)
READ = Verb("read", {"path": _TEXT}, _BYTES, repeatable=True)
WRITE = Verb("write", {"path": _TEXT, "content": _BYTES}, _NOTHING)
EDIT = Verb("edit", {"path": _TEXT, "old": _TEXT, "new": _TEXT}, _NOTHING)
LIST = Verb("list", {"path": _TEXT}, _TEXTS, repeatable=True)
RUN_TESTS = Verb("run_tests", {"tests": _FILES, "expected": _TEXTS, "limits": _LIMITS}, _TESTS)
SNAPSHOT = Verb("snapshot", {}, _TEXT)
RESTORE = Verb("restore", {"snapshot": _TEXT}, _NOTHING)
DIFF = Verb("diff", {}, _CHANGES, repeatable=True)
FORK = Verb("fork", {}, _OPENED)
"""Its answer is another session, under a name and a lease of its own."""

VERBS: Mapping[str, Verb[Any]] = {
    verb.name: verb for verb in (EXEC, CELL, READ, WRITE, EDIT, LIST, RUN_TESTS, SNAPSHOT, RESTORE, DIFF, FORK)
}


# ── what is asked ─────────────────────────────────────────────────────────────────────────────────────────────


def write_open(asked: OpenRequest) -> bytes:
    whole = {
        "tree": dict(asked.tree),
        "limits": asdict(asked.limits),
        "background": asked.background,
        "caller": asdict(asked.caller),
    }
    return json.dumps(whole).encode()


def read_open(body: bytes) -> OpenRequest:
    match read_object(body, "an opening"):
        case {"tree": tree, "limits": dict(limits), "background": bool(background), "caller": dict(caller)}:
            return OpenRequest(
                read_files(tree), filled(SandboxLimits, limits), background, filled(SandboxCaller, caller)
            )
    raise MalformedError("an opening that lacks a field or has one of another type")


def write_verb(asked: VerbRequest) -> bytes:
    parameters = asked.verb.parameters
    whole = {
        "session": asked.session,
        "number": asked.number,
        "verb": asked.verb.name,
        "arguments": {name: parameters[name].write(value) for name, value in asked.arguments.items()},
    }
    return json.dumps(whole).encode()


def read_verb(body: bytes) -> VerbRequest:
    match read_object(body, "a verb"):
        case {"verb": str(name)} if name not in VERBS:
            raise MalformedError(f"a session has no verb {name[:100]!r}; it has {', '.join(VERBS)}")
        case {"session": str(session), "number": int(number), "verb": str(name), "arguments": dict(given)}:
            verb = VERBS[name]
            if number > 0 and given.keys() >= verb.parameters.keys():
                arguments = {parameter: form.read(given[parameter]) for parameter, form in verb.parameters.items()}
                return VerbRequest(session, number, verb, arguments)
    raise MalformedError("a verb that lacks a field or has one of another type")


def write_name(session: str) -> bytes:
    """All that a sign of life and an end say."""
    return json.dumps({"session": session}).encode()


def read_name(body: bytes) -> str:
    match read_object(body, "a session's name"):
        case {"session": str(session)}:
            return session
    raise MalformedError("a session without its name")


# ── what is answered ──────────────────────────────────────────────────────────────────────────────────────────


def max_verb_answer_bytes(asked: bytes, session: SandboxLimits, step: SandboxLimits) -> int:
    """No honest answer to `asked` is larger: the content of the work tree and its base, as text, or of a step."""
    return 2 * (2 * session.disk_mib + 1) * MIB + max_test_answer_bytes(asked, step)


def write_verb_answer(verb: Verb[T], answer: T) -> bytes:
    return json.dumps({"answer": verb.answer.write(answer)}).encode()


def read_verb_answer(verb: Verb[T], body: bytes) -> T:
    """Raises `RefusedError` for a refusal, and `MalformedError`."""
    match read_answer(body):
        case {"answer": answer}:
            return verb.answer.read(answer)
    raise MalformedError(f"an answer to {verb.name!r} without one")


def write_opened(opened: Opened) -> bytes:
    return json.dumps(asdict(opened)).encode()


def read_opened(body: bytes) -> Opened:
    """Raises `RefusedError` for a refusal, and `MalformedError`."""
    return _opened(read_answer(body))


def read_done(body: bytes) -> None:
    """Of a sign of life or an end. Raises `RefusedError` for a refusal, and `MalformedError`."""
    read_answer(body)
