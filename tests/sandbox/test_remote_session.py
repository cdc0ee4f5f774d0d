"""What becomes of a session elsewhere when its client, its connection or its server is gone, and what is refused."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.sandbox.serving_thread import TOKEN, Serving, closing, serving

from posttrain.core.errors import SandboxError
from posttrain.core.protocols import SandboxSession
from posttrain.core.sandboxing import (
    ResultClass,
    SandboxCaller,
    SandboxLimits,
    TestOutcome,
)
from posttrain.sandbox import link
from posttrain.sandbox.decode import MalformedError
from posttrain.sandbox.local import LocalSandbox
from posttrain.sandbox.remote import RemoteSandbox
from posttrain.sandbox.remote_session import RemoteSession
from posttrain.sandbox.scripted import ScriptedSandbox
from posttrain.sandbox.wire_session import (
    CLOSE,
    EXEC,
    FORK,
    OPEN,
    READ,
    RENEW,
    SESSION_PATHS,
    VERB,
    VERBS,
    WRITE,
    OpenRequest,
    Verb,
    VerbRequest,
    read_name,
    read_open,
    read_verb,
    write_name,
    write_open,
    write_verb,
)

LIMITS = SandboxLimits(wall_s=60.0)
_PATIENCE_S = 30.0
AN_OPENING = write_open(OpenRequest({"a": "x"}, LIMITS, False, SandboxCaller()))


@pytest.fixture(autouse=True)
def no_back_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "_BACK_OFF_S", 0.0)
    monkeypatch.setattr(link, "_MAX_RETRY_AFTER_S", 0.01)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(_PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.001)


def post(server: Serving, path: str, content: bytes, token: str = TOKEN) -> httpx2.Response:
    headers = {"authorization": f"Bearer {token}"}
    return httpx2.post(server.url + path, content=content, headers=headers, trust_env=False, timeout=_PATIENCE_S)


def opened(server: Serving) -> str:
    name: str = post(server, OPEN, AN_OPENING).json()["session"]
    return name


def asked(server: Serving, name: str, number: int, verb: Verb[Any], **arguments: Any) -> httpx2.Response:
    return post(server, VERB, write_verb(VerbRequest(name, number, verb, arguments)))


async def sh(session: SandboxSession, line: str) -> str:
    result = await session.exec(["sh", "-c", line], limits=LIMITS)
    assert result.result_class is ResultClass.OK, result
    return result.stdout


def local(server: Serving) -> LocalSandbox:
    assert isinstance(server.sandbox, LocalSandbox)
    return server.sandbox


def num_open(server: Serving) -> int:
    return local(server).figures().sessions


# ── verbs ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_verb_of_a_session_travels() -> None:
    verbs = {name for name in vars(SandboxSession) if not name.startswith("_")}
    assert verbs == VERBS.keys() | {"close"}
    assert verbs == {name for name in vars(RemoteSession) if not name.startswith("_")}


def test_a_test_whose_server_fails_is_a_fault_of_ours(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    nowhere = RemoteSandbox("http://127.0.0.1:9", tmp_path / "token")

    async def ask() -> None:
        async with closing(nowhere):
            result = await nowhere.test({}, {}, ["test_a.py::test_a"], limits=LIMITS)
            assert result.run.result_class is ResultClass.INFRASTRUCTURE_ERROR
            assert result.outcomes == {"test_a.py::test_a": TestOutcome.MISSING}
            with pytest.raises(SandboxError, match=r"could not begin: the sandbox server http://127\.0\.0\.1:9 failed"):
                await nowhere.session({})

    asyncio.run(ask())


def test_verbs_that_a_sandbox_lacks_are_refused_by_name(tmp_path: Path) -> None:
    async def ask(client: RemoteSandbox) -> None:
        async with closing(client):
            with pytest.raises(SandboxError, match="'scripted' has no verb 'session'"):
                await client.session({})
            with pytest.raises(SandboxError, match="'scripted' has no verb 'test'"):
                await client.test({}, {}, ["t"], limits=LIMITS)

    with serving(ScriptedSandbox(), tmp_path) as server:
        asyncio.run(ask(server.client()))


def test_sessions_are_counted_on_both_sides_and_closed_with_their_sandbox(tmp_path: Path) -> None:
    async def ask(server: Serving) -> None:
        async with closing(server.client()) as client:
            session = await client.session({})
            twin = await session.fork()
            assert (client.figures().sessions, num_open(server)) == (2, 2)
            await twin.close()
            assert (client.figures().sessions, num_open(server)) == (1, 1)
        assert (client.figures().sessions, num_open(server)) == (0, 0)
        with pytest.raises(SandboxError, match="closed"):
            await session.list()

    with serving(LocalSandbox(), tmp_path) as server:
        asyncio.run(ask(server))


def test_a_verb_that_is_cancelled_loses_the_session_and_closing_it_frees_the_slot(tmp_path: Path) -> None:
    async def ask(server: Serving) -> None:
        async with closing(server.client()) as client:
            session = await client.session({})
            verb = asyncio.ensure_future(session.exec(["sleep", "60"], limits=LIMITS))
            await until(lambda: local(server).figures().running == 1)
            verb.cancel()
            with pytest.raises(asyncio.CancelledError):
                await verb
            with pytest.raises(SandboxError, match="the session is lost: 'exec' was cancelled"):
                await session.list()
            await session.close()
            assert num_open(server) == 0

    with serving(LocalSandbox(), tmp_path) as server:
        asyncio.run(ask(server))


# ── leases ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_dead_clients_slot_is_free_after_its_lease(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def die(client: RemoteSandbox) -> None:
        session = await client.session({})
        verb = asyncio.ensure_future(session.exec(["sleep", "60"], limits=LIMITS))
        await until(lambda: local(server).figures().running == 1)
        verb.cancel()
        await asyncio.wait({verb})
        await client._link.here().client.aclose()  # and nobody closes the session

    async def live(client: RemoteSandbox) -> None:
        async with closing(client), asyncio.timeout(_PATIENCE_S):  # the first one's program would run for longer
            assert await (await client.session({"a": "x"})).read("a") == b"x"

    with serving(LocalSandbox(), tmp_path, max_sessions=1, lease_s=0.5) as server:
        asyncio.run(die(server.client()))
        with caplog.at_level(logging.WARNING):
            asyncio.run(live(server.client()))
        assert "nothing was heard of its client for 0.5 s" in caplog.text


def test_a_client_that_lives_keeps_its_session_for_longer_than_a_lease(tmp_path: Path) -> None:
    async def ask(server: Serving) -> None:
        async with closing(server.client()) as client:
            session, silent = await client.session({"a": "x"}), await asyncio.to_thread(opened, server)
            await until(lambda: num_open(server) == 1)  # the other one's lease ran out, which began later
            assert await session.read("a") == b"x"
            assert asked(server, silent, 1, READ, path="a").status_code == 410

    with serving(LocalSandbox(), tmp_path, lease_s=2.0) as server:
        asyncio.run(ask(server))


def test_a_session_whose_lease_ran_out_says_so(tmp_path: Path) -> None:
    async def ask(server: Serving) -> None:
        async with closing(server.client()) as client:
            session = await client.session({})
            session._here.close()  # no more signs of life
            await until(lambda: num_open(server) == 0)
            for _ in range(2):
                with pytest.raises(SandboxError, match=r"^the session is lost: .* sign of life for 0\.05 s"):
                    await session.read("a")
            await session.close()

    with serving(LocalSandbox(), tmp_path, lease_s=0.05) as server:
        asyncio.run(ask(server))


def test_sessions_are_bounded_and_who_comes_later_waits(tmp_path: Path) -> None:
    async def ask(server: Serving) -> None:
        async with closing(server.client()) as client:
            first = await client.session({})
            opening = await asyncio.to_thread(post, server, OPEN, AN_OPENING)
            forking = await asyncio.to_thread(asked, server, first._opened.session, 1, FORK)
            for refused in (opening, forking):
                assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
            assert await first.snapshot()  # the number of what was not begun is free
            later = asyncio.ensure_future(client.session({}))
            await asyncio.sleep(0.1)
            assert not later.done()
            await first.close()
            assert await (await later).list() == []

    with serving(LocalSandbox(), tmp_path, max_sessions=1) as server:
        asyncio.run(ask(server))


# ── connections that break ────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Cutter:
    """The way to a server, which breaks for the next so many verbs: with half of the request, or at the first byte of
    its answer."""

    port: int
    cuts: int = 0
    early: bool = False
    carried: set[asyncio.Task[None]] = field(default_factory=set)

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.carried.add(task)
        there, to_there = await asyncio.open_connection("127.0.0.1", self.port)
        cutting = asyncio.Event()

        async def ask() -> None:
            while part := await reader.read(1 << 16):
                if self.cuts and VERB.encode() in part:
                    self.cuts -= 1
                    cutting.set()
                    if self.early:
                        to_there.write(part[:-1])
                        return
                to_there.write(part)

        async def answer() -> None:
            while (part := await there.read(1 << 16)) and not cutting.is_set():
                writer.write(part)

        ways = {asyncio.create_task(ask()), asyncio.create_task(answer())}
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        for end in (writer, to_there):
            end.close()
            with contextlib.suppress(OSError):
                await end.wait_closed()


@contextlib.asynccontextmanager
async def cut(server: Serving) -> AsyncIterator[tuple[RemoteSandbox, Cutter]]:
    cutter = Cutter(int(server.url.rpartition(":")[2]))
    async with await asyncio.start_server(cutter.carry, "127.0.0.1", 0) as way:
        url = f"http://127.0.0.1:{way.sockets[0].getsockname()[1]}"
        async with closing(RemoteSandbox(url, server.token_file)) as client:
            yield client, cutter
        await asyncio.gather(*cutter.carried)


@pytest.mark.parametrize(
    ("beat_s", "early"),
    [(0.02, False), (5.0, False), (5.0, True)],
    ids=["while it runs", "before its answer", "before it is asked"],
)
def test_a_verb_whose_connection_breaks_is_done_once(tmp_path: Path, beat_s: float, early: bool) -> None:
    async def ask(server: Serving) -> None:
        async with cut(server) as (client, way):
            session = await client.session({})
            way.early, way.cuts = early, 2
            assert await sh(session, "echo x >> log; sleep 0.3; cat log") == "x\n"
            assert way.cuts == 0
            way.cuts = 2
            first = await session.snapshot()
            assert await session.snapshot() == f"snapshot-{int(first.removeprefix('snapshot-')) + 1}"
            way.cuts = 1
            twin = await session.fork()
            assert await twin.diff() == await session.diff() == {"log": b"x\n"}
            assert num_open(server) == 2
            way.cuts = 3
            assert await session.read("log") == b"x\n"
            assert way.cuts == 0

    with serving(LocalSandbox(), tmp_path, beat_s=beat_s) as server:
        asyncio.run(ask(server))


def test_where_it_is_not_known_what_became_of_a_verb_the_session_is_lost(tmp_path: Path) -> None:
    async def ask(server: Serving) -> None:
        async with cut(server) as (client, way):
            session = await client.session({})
            way.cuts = 4
            with pytest.raises(SandboxError, match="the session is lost, and with it what became of 'write'"):
                await session.write("a", b"")
            with pytest.raises(SandboxError, match="the session is lost"):
                await session.list()
            await session.close()
            assert num_open(server) == 0

    with serving(LocalSandbox(), tmp_path) as server:
        asyncio.run(ask(server))


def test_one_who_asks_again_gets_the_same_answer_and_one_who_asks_for_less_is_refused(tmp_path: Path) -> None:
    with serving(LocalSandbox(), tmp_path) as server:
        name = opened(server)
        appended = {"argv": ["sh", "-c", "echo x >> log; cat log"], "stdin": "", "limits": LIMITS}
        answers = [asked(server, name, 7, EXEC, **appended) for _ in range(3)]
        assert [answer.json() for answer in answers] == [answers[0].json()] * 3
        assert answers[0].json()["answer"]["stdout"] == "x\n"
        reads = [asked(server, name, 8, READ, path="log").json() for _ in range(2)]
        assert reads == [{"answer": "eAo="}] * 2
        refused = asked(server, name, 8, READ, path="a"), asked(server, name, 7, EXEC, **appended)
        assert [answer.status_code for answer in refused] == [409, 409]
        assert post(server, CLOSE, write_name(name)).json() == {}


def test_a_second_verb_beside_one_that_runs_is_refused(tmp_path: Path) -> None:
    async def ask(server: Serving) -> None:
        name = opened(server)
        sleeping = {"argv": ["sleep", "60"], "stdin": "", "limits": LIMITS}
        first = asyncio.ensure_future(asyncio.to_thread(asked, server, name, 1, EXEC, **sleeping))
        await until(lambda: local(server).figures().running == 1)
        beside = await asyncio.to_thread(asked, server, name, 2, READ, path="a")
        assert (beside.status_code, "one at a time" in beside.text) == (409, True)
        assert post(server, CLOSE, write_name(name)).json() == {}
        assert (await first).json() == {"refused": "sandbox", "message": "the session is lost: it was closed"}

    with serving(LocalSandbox(), tmp_path) as server:
        asyncio.run(ask(server))


# ── a server that ends ────────────────────────────────────────────────────────────────────────────────────────


def test_a_server_that_is_told_to_end_closes_sessions_after_their_verbs(tmp_path: Path) -> None:
    async def ask(server: Serving) -> None:
        async with closing(server.client()) as client:
            session, idle = await client.session({}), await client.session({})
            verb = asyncio.ensure_future(sh(session, "sleep 2; echo ended"))
            await until(lambda: local(server).figures().running == 1)
            server.stop()
            await until(lambda: num_open(server) == 1)
            with pytest.raises(SandboxError, match="the session is lost"):
                await idle.list()
            refused = await asyncio.to_thread(post, server, OPEN, AN_OPENING)
            assert (refused.status_code, "retry-after" in refused.headers) == (503, True)
            assert not verb.done()
            assert await verb == "ended\n"
            await asyncio.to_thread(server.thread.join)
            assert num_open(server) == 0

    with serving(LocalSandbox(), tmp_path) as server:
        asyncio.run(ask(server))


def test_a_server_that_is_told_to_end_at_once_leaves_no_session(tmp_path: Path) -> None:
    async def ask(server: Serving) -> None:
        async with closing(server.client()) as client:
            session = await client.session({})
            verb = asyncio.ensure_future(session.exec(["sleep", "60"], limits=LIMITS))
            await until(lambda: local(server).figures().running == 1)
            server.stop()
            server.cancel()
            with pytest.raises(SandboxError, match="the session is lost"):
                await verb
            await until(lambda: num_open(server) == 0)

    with serving(LocalSandbox(), tmp_path) as server:
        asyncio.run(ask(server))


# ── what the server keeps to ──────────────────────────────────────────────────────────────────────────────────


def test_sessions_have_names_that_differ_and_are_long(tmp_path: Path) -> None:
    with serving(LocalSandbox(), tmp_path) as server:
        names = {opened(server) for _ in range(3)}
    assert len(names) == 3
    assert min(map(len, names)) >= 43  # 256 bits


@pytest.mark.parametrize("token", ["x", "another-token-than-the-servers"])
def test_nothing_of_a_session_is_answered_without_the_token(tmp_path: Path, token: str) -> None:
    with serving(LocalSandbox(), tmp_path) as server:
        name = opened(server)
        bodies = {
            OPEN: AN_OPENING,
            VERB: write_verb(VerbRequest(name, 1, WRITE, {"path": "a", "content": b""})),
            RENEW: write_name(name),
            CLOSE: write_name(name),
        }
        assert {post(server, path, bodies[path], token).status_code for path in SESSION_PATHS} == {401}
        assert asked(server, name, 1, READ, path="a").json() == {"answer": "eA=="}
        assert num_open(server) == 1


def test_a_name_that_is_no_sessions_is_told_so(tmp_path: Path) -> None:
    with serving(LocalSandbox(), tmp_path) as server:
        for found in (asked(server, "nobody", 1, READ, path="a"), post(server, RENEW, write_name("nobody"))):
            assert (found.status_code, found.json()["error"][:19]) == (410, "the session is lost")
        assert post(server, CLOSE, write_name("nobody")).json() == {}


A_VERB = write_verb(VerbRequest("name", 1, WRITE, {"path": "a", "content": b"x"}))


@pytest.mark.parametrize(
    ("path", "body"),
    [
        *((path, body) for path in SESSION_PATHS for body in (b"", b"{}", b"[]", b"\xff", b"[" * 100_000)),
        *((OPEN, AN_OPENING.replace(b'"x"', other)) for other in (b"7", b"null", b"[]")),
        (OPEN, AN_OPENING.replace(b"false", b'"no"')),
        (OPEN, AN_OPENING.replace(b'"wall_s": 60.0', b'"wall_s": "long"')),
        *((VERB, A_VERB.replace(b'"write"', other)) for other in (b'"close"', b'"__init__"', b'"_do"', b"7")),
        *((VERB, A_VERB.replace(b'"number": 1', other)) for other in (b'"number": 0', b'"number": "1"', b'"n": 1')),
        *((VERB, A_VERB.replace(b'"eA=="', other)) for other in (b'"eA"', b'"!!!!"', b"7", b'"\xc3\xa9"')),
        (VERB, A_VERB.replace(b'"path": "a", ', b"")),
        (VERB, A_VERB.replace(b'"name"', b"7")),
        (RENEW, b'{"session":7}'),
    ],
)
def test_a_malformed_request_is_refused(tmp_path: Path, path: str, body: bytes) -> None:
    readers: dict[str, Callable[[bytes], object]] = {OPEN: read_open, VERB: read_verb, RENEW: read_name}
    with pytest.raises(MalformedError):
        readers.get(path, read_name)(body)
    with serving(ScriptedSandbox(), tmp_path) as server:
        assert post(server, path, body).status_code == 400


def test_a_verb_that_only_a_newer_client_knows_is_refused_by_name(tmp_path: Path) -> None:
    with serving(ScriptedSandbox(), tmp_path) as server:
        found = post(server, VERB, A_VERB.replace(b'"write"', b'"dance"'))
    assert (found.status_code, "no verb 'dance'; it has exec, cell" in found.text) == (400, True)
