"""A sandbox elsewhere gives what the one there gives, and whatever is wrong on the way is never the program's doing."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sandbox.serving_thread import TOKEN, Serving, closing
from tests.sandbox.serving_thread import serving as served

from posttrain.core import registry
from posttrain.core.errors import ConfigError, SandboxError, UserError
from posttrain.core.sandboxing import (
    SANDBOX_CALLER,
    CallOutput,
    CallResult,
    IsolationTier,
    OutputStatus,
    ResultClass,
    RunResult,
    SandboxCaller,
    SandboxLimits,
)
from posttrain.core.types import Json
from posttrain.sandbox import asgi, link, serving, wire
from posttrain.sandbox.attacks.check import check
from posttrain.sandbox.conformance import check_conformance, exact
from posttrain.sandbox.decode import MalformedError
from posttrain.sandbox.local import LocalSandbox
from posttrain.sandbox.remote import RemoteSandbox
from posttrain.sandbox.scripted import ScriptedSandbox
from posttrain.sandbox.wire import CALL, RUN, STATUS, TEST

LIMITS = SandboxLimits()
_PATIENCE_S = 30.0
SOURCE = "def f(x): return x"
SCRIPTED_OK = b'{"run":{"result_class":"ok","tier":"full"},"outputs":[{"status":"value","error":"","value":1}]}'


@dataclass(frozen=True)
class HeldSandbox(ScriptedSandbox):
    """Executions end when `release` is set."""

    release: threading.Event = field(default_factory=threading.Event)
    callers: list[SandboxCaller] = field(default_factory=list)
    cancelled: list[SandboxCaller] = field(default_factory=list)

    async def call(
        self,
        source: str,
        function: str,
        inputs: Sequence[Sequence[Json]],
        *,
        limits: SandboxLimits,
        profile: str = "python",
    ) -> CallResult:
        caller = SANDBOX_CALLER.get()
        self.callers.append(caller)
        try:
            while not self.release.is_set():
                await asyncio.sleep(0.001)
        except asyncio.CancelledError:
            self.cancelled.append(caller)
            raise
        outputs = tuple(CallOutput(OutputStatus.VALUE, arguments[0]) for arguments in inputs)
        return CallResult(RunResult(ResultClass.OK, self.tier), outputs)


def call(sandbox: RemoteSandbox, profile: str = "python") -> CallResult:
    async def ask() -> CallResult:
        async with closing(sandbox):
            return await sandbox.call(SOURCE, "f", [[1]], limits=LIMITS, profile=profile)

    return asyncio.run(ask())


def run(sandbox: RemoteSandbox, files: Mapping[str, str] | None = None) -> RunResult:
    async def ask() -> RunResult:
        async with closing(sandbox):
            return await sandbox.run(["true"], files=files, limits=LIMITS)

    return asyncio.run(ask())


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(_PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.001)


def post(server: Serving, path: str = CALL, content: bytes = b"", token: str | None = TOKEN) -> httpx2.Response:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    return httpx2.post(server.url + path, content=content, headers=headers, trust_env=False, timeout=_PATIENCE_S)


A_CALL = wire.write_call(wire.CallRequest(SOURCE, "f", [[1]], LIMITS, "python", SandboxCaller()))


@pytest.fixture(autouse=True)
def no_back_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "_BACK_OFF_S", 0.0)
    monkeypatch.setattr(link, "_MAX_RETRY_AFTER_S", 0.01)


# ── as the one behind it ──────────────────────────────────────────────────────────────────────────────────────


def test_remote_sandbox_conforms(tmp_path: Path) -> None:
    async def ask(sandbox: RemoteSandbox) -> list[Any]:
        async with closing(sandbox):
            return [found for found in await check_conformance(sandbox) if not found]

    with served(LocalSandbox(), tmp_path) as server:
        client = server.client()
        assert asyncio.run(ask(client)) == []
        assert client.tier is LocalSandbox().tier
        figures = client.status().figures
        assert sum(figures.ended.values()) == sum(client.figures().ended.values()) > 40
        assert client.figures().retries == 0


@pytest.mark.slow
def test_every_attack_is_contained_through_a_server(tmp_path: Path) -> None:
    async def ask(sandbox: RemoteSandbox) -> list[Any]:
        async with closing(sandbox):
            return await check(sandbox)

    with served(LocalSandbox(), tmp_path) as server:
        results = asyncio.run(ask(server.client()))
    holes = {"memory by many processes"} if not LocalSandbox().status().cgroup else set()
    assert len(results) >= 240
    assert {result.name for result in results if not result} == holes


def test_the_results_tier_is_the_servers(tmp_path: Path) -> None:
    with served(ScriptedSandbox(functions={"f": lambda x: x}), tmp_path) as server:
        client = server.client()
        assert call(client).run.tier is IsolationTier.SCRIPTED
        assert run(client).tier is IsolationTier.SCRIPTED
        assert client.tier is IsolationTier.SCRIPTED


def test_errors_of_the_sandbox_behind_it_are_raised_here(tmp_path: Path) -> None:
    with served(LocalSandbox(), tmp_path) as server, pytest.raises(SandboxError, match="no profile 'nothing'"):
        call(server.client(), profile="nothing")


def test_bad_input_is_told_before_anything_is_sent(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    nowhere = RemoteSandbox("http://127.0.0.1:9", tmp_path / "token")
    with pytest.raises(UserError, match="no inputs"):
        asyncio.run(nowhere.call(SOURCE, "f", [], limits=LIMITS))
    with pytest.raises(UserError, match="no plain data"):
        asyncio.run(nowhere.call(SOURCE, "f", [[object()]], limits=LIMITS))
    with pytest.raises(UserError, match="must stay inside"):
        run(nowhere, {"../out": "x"})
    with pytest.raises(UserError, match="must stay inside"):
        asyncio.run(nowhere.test({"../out": "x"}, {}, ["t"], limits=LIMITS))
    with pytest.raises(UserError, match="must stay inside"):
        asyncio.run(nowhere.session({"../out": "x"}))


def test_more_files_than_disk_is_the_programs_disk_limit(tmp_path: Path) -> None:
    with served(ScriptedSandbox(), tmp_path) as server:
        result = run(server.client(), {"big": "x" * (LIMITS.disk_mib << 20)})
    assert (result.result_class, result.tier) == (ResultClass.DISK_LIMIT, IsolationTier.SCRIPTED)


# ── what goes wrong on the way ────────────────────────────────────────────────────────────────────────────────


class Canned(http.server.ThreadingHTTPServer):
    """Answers with what it is given, in order; the last one for ever."""

    def __init__(self, folder: Path, *answers: tuple[int, bytes, dict[str, str]]) -> None:
        self.answers, self.num_asked = list(answers), 0
        super().__init__(("127.0.0.1", 0), Canned.Handler)
        (folder / "token").write_text(TOKEN)
        self.client = RemoteSandbox(f"http://127.0.0.1:{self.server_port}", folder / "token")

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            server = self.server
            assert isinstance(server, Canned)
            server.num_asked += 1
            self.rfile.read(int(self.headers.get("content-length", 0)))
            code, body, headers = server.answers.pop(0) if len(server.answers) > 1 else server.answers[0]
            self.send_response(code)
            for name, value in ({"content-length": str(len(body))} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)
            self.close_connection = "content-length" in headers

        do_GET = do_POST

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""


@contextlib.contextmanager
def canned(folder: Path, *answers: tuple[int, bytes, dict[str, str]]) -> Iterator[Canned]:
    with Canned(folder, *answers) as server:
        thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.01))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    "answer",
    [
        (500, b"", {}),
        (502, b"<html>bad gateway</html>", {}),
        (503, b'{"error":"this server is about to end"}', {}),
        (200, b"", {}),
        (200, b"no JSON", {}),
        (200, b"[]", {}),
        (200, b'{"run":{}}', {}),
        (200, SCRIPTED_OK[:-1], {}),
        (200, SCRIPTED_OK, {"content-length": "5000"}),
        (200, SCRIPTED_OK.replace(b'"ok"', b'"fine"'), {}),
        (200, SCRIPTED_OK.replace(b":1}", b":NaN}"), {}),
        (200, SCRIPTED_OK.replace(b":1}", b':{"set":[]}}'), {}),
        (200, SCRIPTED_OK.replace(b'"value"', b'"worth"', 1), {}),
        (200, SCRIPTED_OK.replace(b'"outputs":[', b'"outputs":[null,'), {}),
        (200, b"[" * 100_000, {}),
        (200, SCRIPTED_OK.replace(b'[{"status"', b'[{"status":"value","error":"","value":1},{"status"'), {}),
        (200, SCRIPTED_OK + b" " * 10_000_000, {}),
    ],
)
def test_a_server_that_fails_is_a_fault_of_ours_after_some_attempts(
    tmp_path: Path, answer: tuple[int, bytes, dict[str, str]]
) -> None:
    with canned(tmp_path, answer) as server:
        result = call(server.client)
    assert result.run.result_class is ResultClass.INFRASTRUCTURE_ERROR
    assert server.client.url in result.run.reason
    assert [output.status for output in result.outputs] == [OutputStatus.MISSING]
    assert server.num_asked == 4
    assert server.client.figures().ended == {ResultClass.INFRASTRUCTURE_ERROR: 1}


def test_a_server_that_recovers_is_no_fault(tmp_path: Path) -> None:
    with canned(tmp_path, (500, b"", {}), (200, b"{", {}), (200, SCRIPTED_OK, {})) as server:
        result = call(server.client)
    assert (result.run.result_class, result.outputs[0].value) == (ResultClass.OK, 1)
    assert (server.client.figures().retries, server.client.tier) == (2, IsolationTier.FULL)


def test_nobody_there_is_a_fault_of_ours_and_no_tier(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    with serving.listen("127.0.0.1", 0) as listener:  # a port that was free a moment ago
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    client = RemoteSandbox(url, tmp_path / "token")
    result = run(client)
    assert (result.result_class, result.tier) == (ResultClass.INFRASTRUCTURE_ERROR, IsolationTier.REDUCED)
    with pytest.raises(SandboxError, match=r"did not answer 4 times: .+"):
        assert client.tier


def test_a_silent_server_is_a_fault_of_ours(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    with serving.listen("127.0.0.1", 0) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        assert call(RemoteSandbox(url, tmp_path / "token", silence_s=0.02)).run.reason.endswith("ReadTimeout")


def test_signs_of_life_keep_a_long_execution(tmp_path: Path) -> None:
    held = HeldSandbox()
    with served(held, tmp_path, beat_s=0.02) as server:
        threading.Timer(3.0, held.release.set).start()  # four silences would be over by then
        assert call(server.client(silence_s=0.5)).run.result_class is ResultClass.OK


def test_a_wrong_token_is_the_users(tmp_path: Path) -> None:
    with served(ScriptedSandbox(), tmp_path) as server:
        client = server.client()
        server.token_file.write_text("another-token-than-the-servers")
        with pytest.raises(ConfigError, match="does not take the token"):
            call(client)
        with pytest.raises(ConfigError, match="does not take the token"):
            assert client.tier


def test_any_other_answer_is_a_refusal(tmp_path: Path) -> None:
    with canned(tmp_path, (404, b'{"error":"there is no such path"}', {})) as server:
        with pytest.raises(SandboxError, match="answered 404: there is no such path"):
            call(server.client)
        assert server.num_asked == 1


# ── what the server keeps to ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("token", [None, "x", "another-token-than-the-servers", TOKEN[:-1], TOKEN + "x"])
def test_nothing_is_answered_without_the_token(tmp_path: Path, token: str | None) -> None:
    sandbox = ScriptedSandbox()
    with served(sandbox, tmp_path) as server:
        found = {path: post(server, path, A_CALL, token).status_code for path in (CALL, RUN, TEST, STATUS, "/")}
    assert set(found.values()) == {401}
    assert sandbox.calls == []


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{}", b"[]", b"\xff", b"[" * 100_000, A_CALL[:-1]),
        *(A_CALL.replace(b"[[1]]", inputs) for inputs in (b"[1]", b"[[NaN]]", b'[[{"set":[]}]]', b"null")),
        *(A_CALL.replace(b'"f"', b"7"), A_CALL.replace(b'"priority": 0', b'"priority": "first"')),
        A_CALL.replace(b'"wall_s": 10.0', b'"wall_s": "long"'),
    ],
)
def test_a_malformed_request_is_refused(tmp_path: Path, body: bytes) -> None:
    with pytest.raises(MalformedError):
        wire.read_call(body)
    with served(ScriptedSandbox(), tmp_path) as server:
        assert post(server, content=body).status_code == 400
        assert post(server, path=RUN, content=body).status_code == 400
        assert post(server, path=TEST, content=body).status_code == 400


def test_a_request_that_is_too_large_is_refused_on_both_sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = ScriptedSandbox(functions={"f": lambda x: x})
    with served(sandbox, tmp_path) as server:
        monkeypatch.setattr(asgi, "MAX_BODY_BYTES", 100)
        assert post(server, content=A_CALL).status_code == 413
        with pytest.raises(SandboxError, match="answered 413"):
            call(server.client())
        monkeypatch.setattr(link, "MAX_BODY_BYTES", 100)
        with pytest.raises(UserError, match="too large to send: at most 100"):
            call(server.client())
    assert sandbox.calls == []


def test_who_asks_travels_along(tmp_path: Path) -> None:
    held = HeldSandbox()
    held.release.set()
    with served(held, tmp_path) as server:
        SANDBOX_CALLER.set(SandboxCaller("evaluation", 7))
        call(server.client())
    assert held.callers == [SandboxCaller("evaluation", 7)]


def test_too_many_that_wait_are_told_to_come_back_and_do(tmp_path: Path) -> None:
    held = HeldSandbox()

    async def ask(server: Serving) -> list[CallResult]:
        async with closing(server.client()) as client:
            calls = [asyncio.ensure_future(client.call(SOURCE, "f", [[n]], limits=LIMITS)) for n in range(4)]
            await until(lambda: len(held.callers) == 3)
            refused = await asyncio.to_thread(post, server, content=A_CALL)
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
            assert not any(call.done() for call in calls)
            held.release.set()
            return await asyncio.gather(*calls)

    with served(held, tmp_path, concurrency=1, max_waiting=2) as server:
        results = asyncio.run(ask(server))
    assert [result.outputs[0].value for result in results] == [0, 1, 2, 3]


def test_an_execution_whose_client_hangs_up_is_cancelled(tmp_path: Path) -> None:
    held = HeldSandbox()

    async def ask(server: Serving) -> None:
        async with closing(server.client()) as client:
            asked = asyncio.ensure_future(client.call(SOURCE, "f", [[1]], limits=LIMITS))
            await until(lambda: len(held.callers) == 1)
            asked.cancel()
            await until(lambda: len(held.cancelled) == 1)

    with served(held, tmp_path) as server:
        asyncio.run(ask(server))


def test_a_server_that_is_told_to_end_lets_what_runs_end_and_takes_no_more(tmp_path: Path) -> None:
    held = HeldSandbox()

    async def ask(server: Serving) -> CallResult:
        async with closing(server.client()) as client:
            asked = asyncio.ensure_future(client.call(SOURCE, "f", [[1]], limits=LIMITS))
            await until(lambda: len(held.callers) == 1)
            server.stop()
            async with asyncio.timeout(_PATIENCE_S):
                while not (await asyncio.to_thread(client.status)).draining:
                    await asyncio.sleep(0.001)
            refused = await asyncio.to_thread(post, server, content=A_CALL)
            assert (refused.status_code, "retry-after" in refused.headers) == (503, True)
            held.release.set()
            return await asked

    with served(held, tmp_path) as server:
        assert asyncio.run(ask(server)).run.result_class is ResultClass.OK
        server.thread.join()


def test_no_part_of_an_answer_waits_for_the_client_to_acknowledge_another() -> None:
    with serving.listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


# ── options and the wire ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"url": "127.0.0.1:8900"}, "url"),
        ({"url": "ftp://host"}, "https://host:8900"),
        ({"url": "http://"}, "https://host:8900"),
        ({"concurrency": 0}, "at least 1"),
        ({"silence_s": 0}, "more than 0"),
        ({"token": "x"}, "no option"),
    ],
)
def test_options_are_checked(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        registry.build("sandbox", {"name": "remote", "url": "http://host", "token_file": "token"} | options)


@pytest.mark.parametrize("token", ["", "  \n", "short", "sixteen or more with spaces", "sixteen-or-more\nin two lines"])
def test_a_token_that_will_not_do_is_the_users(tmp_path: Path, token: str) -> None:
    (tmp_path / "token").write_text(token)
    for file in ("token", "missing"):
        with pytest.raises(ConfigError, match="token file"):
            call(RemoteSandbox("http://127.0.0.1:9", tmp_path / file))


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@settings(deadline=None)
@given(arguments=st.lists(st.lists(plain), min_size=1), source=st.text(), error=st.text(), output=st.text())
def test_nothing_is_lost_on_the_way(arguments: list[list[Any]], source: str, error: str, output: str) -> None:
    asked = wire.CallRequest(source, "f", arguments, LIMITS, "numpy", SandboxCaller("x", -1))
    came = wire.read_call(wire.write_call(asked))
    assert exact(came.inputs, arguments)
    assert (came.source, came.limits, came.profile, came.caller) == (source, LIMITS, "numpy", SandboxCaller("x", -1))
    values = tuple(CallOutput(OutputStatus.VALUE, value, error) for given in arguments for value in given)
    result = CallResult(
        RunResult(ResultClass.SIGNAL, IsolationTier.FULL, output, error, 3, True, 1.5, 0.5, 7.0), values
    )
    back = wire.read_call_result(wire.write_call_result(result), len(values))
    assert back == result
    assert all(exact(one.value, other.value) for one, other in zip(back.outputs, values, strict=True))
    ordered = wire.RunRequest(("a", source), {"f": output}, error, LIMITS, SandboxCaller())
    assert wire.read_run(wire.write_run(ordered)) == wire.RunRequest(
        ["a", source], {"f": output}, error, LIMITS, SandboxCaller()
    )


def test_fields_of_a_newer_other_side_are_left_alone() -> None:
    newer = json.loads(SCRIPTED_OK) | {"more": 1}
    newer["run"]["colour"] = "red"
    assert wire.read_call_result(json.dumps(newer).encode(), 1).outputs[0].value == 1


def test_no_honest_answer_is_too_large() -> None:
    limits = SandboxLimits(output_kib=1)
    run = RunResult(ResultClass.OK, IsolationTier.FULL, "\U0001f71c" * 256, "\0" * 0, reason="x" * 1000)
    value = CallOutput(OutputStatus.VALUE, "x" * ((1 << 20) - 10), "")
    assert len(wire.write_call_result(CallResult(run, (value, value)))) <= wire.max_answer_bytes(2, limits)
