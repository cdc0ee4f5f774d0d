"""A session: a work tree that stays, verbs that cannot leave it, snapshots, and tests that no candidate can touch.

Each fact is tried on the spot and through a server, but for those of slots, which only the spot has.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import pytest
from tests.sandbox.serving_thread import serving

from posttrain.core.errors import SandboxError, UserError
from posttrain.core.protocols import SandboxSession
from posttrain.core.sandboxing import ResultClass, RunResult, SandboxLimits, TestOutcome, TestResult
from posttrain.sandbox.local import LocalSandbox
from posttrain.sandbox.remote import RemoteSandbox
from posttrain.sandbox.session import Session

LIMITS = SandboxLimits(wall_s=20.0, cpu_s=10.0, memory_mib=256, processes=8, disk_mib=8)
TREE = {"a.txt": "one\n", "pkg/m.py": "def f(): return 1\n", "pkg/__init__.py": ""}
LOCAL = LocalSandbox()
PASSED, FAILED, MISSING = TestOutcome.PASSED, TestOutcome.FAILED, TestOutcome.MISSING


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemoteSandbox]:
    with serving(LocalSandbox(), tmp_path_factory.mktemp("served")) as server:
        yield server.client()


@pytest.fixture(params=["local", "remote"])
def sandbox(request: pytest.FixtureRequest) -> LocalSandbox | RemoteSandbox:
    if request.param == "local":
        return LOCAL
    remote: RemoteSandbox = request.getfixturevalue("remote")
    return remote


on_the_spot = pytest.mark.parametrize("sandbox", ["local"], indirect=True)


@asynccontextmanager
async def opened(
    sandbox: LocalSandbox | RemoteSandbox, tree: dict[str, str] = TREE, *, background: bool = False
) -> AsyncIterator[SandboxSession]:
    session: SandboxSession = await sandbox.session(tree, limits=LIMITS, background=background)
    try:
        yield session
    finally:
        await session.close()
        if isinstance(sandbox, RemoteSandbox):
            await sandbox.close()  # of this event loop


Within = Callable[..., None]


@pytest.fixture
def within(sandbox: LocalSandbox | RemoteSandbox) -> Within:
    def within(
        steps: Callable[[SandboxSession], Awaitable[None]], tree: dict[str, str] = TREE, *, background: bool = False
    ) -> None:
        async def run() -> None:
            async with opened(sandbox, tree, background=background) as session:
                await steps(session)

        asyncio.run(run())

    return within


Tested = Callable[[dict[str, str], dict[str, str], list[str]], TestResult]


@pytest.fixture
def tested(sandbox: LocalSandbox | RemoteSandbox) -> Tested:
    def tested(tree: dict[str, str], tests: dict[str, str], expected: list[str]) -> TestResult:
        async def run() -> TestResult:
            result = await sandbox.test(tree, tests, expected, limits=LIMITS)
            if isinstance(sandbox, RemoteSandbox):
                await sandbox.close()
            return result

        return asyncio.run(run())

    return tested


async def sh(session: SandboxSession, line: str, **limits: float) -> RunResult:
    return await session.exec(["sh", "-c", line], limits=dataclasses.replace(LIMITS, **limits))  # type: ignore[arg-type]


def test_files_stay_between_steps_and_processes_do_not(within: Within) -> None:
    async def steps(session: SandboxSession) -> None:
        assert (await sh(session, "echo two >> a.txt; sleep 60 & echo $! > pid")).result_class is ResultClass.OK
        result = await sh(session, "cat a.txt; kill -0 $(cat pid) 2>/dev/null && echo alive")
        assert result.stdout == "one\ntwo\n"

    within(steps)


def test_background_processes_go_on_where_they_were_asked_for(within: Within) -> None:
    async def steps(session: SandboxSession) -> None:
        await sh(session, "(while :; do echo tick >> ticks; sleep 0.01; done) & echo $! > pid")
        result = await sh(session, "n=$(wc -l < ticks); while [ $(wc -l < ticks) -le $n ]; do :; done; echo went on")
        assert result.stdout == "went on\n", result
        with pytest.raises(UserError, match="background processes"):
            await session.snapshot()
        await sh(session, "kill -9 $(cat pid); sleep 0.3")
        assert await session.snapshot()
        await sh(session, "sleep 60 & echo $! > pid")
        assert (await sh(session, "sleep 60", wall_s=0.1)).result_class is ResultClass.TIME_LIMIT
        assert (await sh(session, "kill -0 $(cat pid) 2>/dev/null || echo ended")).stdout == "ended\n"

    within(steps, background=True)


def test_file_verbs_leave_background_processes_alone(within: Within) -> None:
    async def steps(session: SandboxSession) -> None:
        await sh(session, "sleep 60 & echo $! > pid")
        await session.write("b", b"")
        await session.read("b")
        await session.diff()
        assert (await sh(session, "kill -0 $(cat pid) && echo alive")).stdout == "alive\n"

    within(steps, background=True)


def test_verbs_read_write_edit_and_list(within: Within) -> None:
    async def steps(session: SandboxSession) -> None:
        await session.write("new/deep/b.bin", bytes(range(256)))
        assert await session.read("new/deep/b.bin") == bytes(range(256))
        await session.edit("a.txt", "one", "ünï")
        assert (await session.read("./a.txt")).decode() == "ünï\n"
        assert await session.list() == ["a.txt", "new/", "pkg/"]
        assert await session.list("new") == ["deep/"]
        await session.write("empty", b"")
        assert await session.read("empty") == b""

    within(steps)


@pytest.mark.parametrize(
    ("verb", "sentence"),
    [
        (lambda s: s.read("nothing"), "nothing: No such file"),
        (lambda s: s.read("pkg"), "pkg: Is a directory"),
        (lambda s: s.write("a.txt/b", b""), "a.txt/b: Not a directory"),
        (lambda s: s.edit("a.txt", "none", "x"), "0 times"),
        (lambda s: s.edit("pkg/m.py", "1", "x"), None),
        (lambda s: s.edit("a.txt", "", "x"), "empty"),
        (lambda s: s.edit("a.txt", "n", "nn"), None),
        (lambda s: s.list("a.txt"), "Not a directory"),
        (lambda s: s.restore("snapshot-77"), "no snapshot 'snapshot-77'"),
        (lambda s: s.run_tests({}, [], limits=LIMITS), "none are expected"),
        (lambda s: s.exec([], limits=LIMITS), "argv is empty"),
    ],
)
def test_what_cannot_be_done_is_a_sentence_and_changes_nothing(
    within: Within, verb: Callable[[SandboxSession], Awaitable[object]], sentence: str | None
) -> None:
    async def steps(session: SandboxSession) -> None:
        if sentence is None:
            await verb(session)
            return
        with pytest.raises(UserError, match=sentence):
            await verb(session)
        assert await session.diff() == {}

    within(steps)


def test_an_edit_that_is_not_unique_is_refused(within: Within) -> None:
    async def steps(session: SandboxSession) -> None:
        with pytest.raises(UserError, match="there 2 times"):
            await session.edit("twice", "x", "y")

    within(steps, {"twice": "x x"})


@pytest.mark.parametrize("path", ["../a", "/etc/passwd", "a/../../b", "", "a\0b"])
def test_paths_cannot_leave_the_tree(within: Within, path: str) -> None:
    async def steps(session: SandboxSession) -> None:
        verbs: list[Callable[[], Awaitable[object]]] = [
            lambda: session.read(path),
            lambda: session.write(path, b"x"),
            lambda: session.edit(path, "a", "b"),
            lambda: session.list(path),
        ]
        for verb in verbs:
            with pytest.raises(UserError, match="must stay inside"):
                await verb()

    within(steps)


LINKS = "ln -s /usr/bin/env file; ln -s /usr folder; ln -s ../.. up; ln -s / root; ln -s a.txt fine; ln -s loop loop"


def test_links_lead_nowhere_outside(within: Within) -> None:
    async def steps(session: SandboxSession) -> None:
        await sh(session, LINKS)
        for path in ("file", "folder/bin/env", "up/usr/bin/env", "root/usr/bin/env"):
            for verb in (session.read(path), session.write(path, b"x"), session.edit(path, "a", "b")):
                with pytest.raises(UserError, match="leads out of the work tree"):
                    await verb
        for path in ("folder", "up", "root"):
            with pytest.raises(UserError, match="leads out of the work tree"):
                await session.list(path)
        with pytest.raises(UserError, match="symbolic links"):
            await session.read("loop")
        assert await session.read("fine") == b"one\n"
        assert await session.diff() == {}

    within(steps)


def test_diff_tells_what_is_new_changed_and_gone_whatever_the_times_say(within: Within) -> None:
    async def steps(session: SandboxSession) -> None:
        assert await session.diff() == {}
        await sh(session, "touch -r a.txt old; printf 'two\\n' > a.txt; touch -r old a.txt; rm old pkg/m.py; mkdir d")
        await sh(session, "printf x > d/new; chmod 600 d/new; cp pkg/__init__.py same; rm same")
        assert await session.diff() == {"a.txt": b"two\n", "d/new": b"x", "pkg/m.py": None}

    within(steps)


def test_snapshots_are_restored_as_often_as_wanted_in_any_order(within: Within) -> None:
    async def steps(session: SandboxSession) -> None:
        first = await session.snapshot()
        await session.write("a.txt", b"second")
        second = await session.snapshot()
        await sh(session, "rm -r pkg a.txt; mkdir -p x/y; echo z > x/y/z")
        for _ in range(2):
            await session.restore(first)
            assert await session.diff() == {}
            await session.restore(second)
            assert await session.diff() == {"a.txt": b"second"}
        third = await session.snapshot()
        await session.write("b", b"")
        await session.restore(third)
        assert await session.list() == ["a.txt", "pkg/"]

    within(steps)


def test_what_a_restore_gives_up_no_longer_takes_room(within: Within) -> None:
    async def steps(session: SandboxSession) -> None:
        start = await session.snapshot()
        for _ in range(4):
            result = await sh(session, "dd if=/dev/zero of=big bs=1M count=5 2>/dev/null")
            assert result.result_class is ResultClass.OK, result
            await session.restore(start)
        result = await sh(session, "dd if=/dev/zero of=big bs=1M count=9")
        assert result.result_class is ResultClass.DISK_LIMIT

    within(steps)


def test_many_snapshots_in_a_row_end_in_a_sentence(within: Within) -> None:
    async def steps(session: SandboxSession) -> None:
        for _ in range(64):
            await session.snapshot()
        with pytest.raises(UserError, match="at most 64 snapshots"):
            await session.snapshot()
        assert await session.read("a.txt") == b"one\n"

    within(steps)


def test_a_fork_has_the_same_tree_and_its_own_future(within: Within) -> None:
    async def steps(session: SandboxSession) -> None:
        await sh(session, "echo two >> a.txt; rm pkg/m.py")
        twin = await session.fork()
        try:
            assert await twin.diff() == await session.diff() == {"a.txt": b"one\ntwo\n", "pkg/m.py": None}
            await twin.write("a.txt", b"twin")
            assert await session.read("a.txt") == b"one\ntwo\n"
        finally:
            await twin.close()

    within(steps)


def test_limits_of_a_step_are_its_own(within: Within) -> None:
    async def steps(session: SandboxSession) -> None:
        assert (await sh(session, "while :; do :; done", wall_s=0.2)).result_class is ResultClass.TIME_LIMIT
        assert (await sh(session, "yes", output_kib=4)).result_class is ResultClass.OUTPUT_LIMIT
        assert (await session.exec(["no-such"], limits=LIMITS)).exit_code == 127
        assert (await session.exec(["cat"], stdin="given", limits=LIMITS)).stdout == "given"
        assert await session.read("a.txt") == b"one\n"

    within(steps)


TESTS = {"tests/test_m.py": "from pkg.m import f\ndef test_one(): assert f() == 1\ndef test_two(): assert f() == 2\n"}
IDS = ["tests/test_m.py::test_one", "tests/test_m.py::test_two", "tests/test_m.py::test_three"]


def test_tests_count_by_expected_ids(tested: Tested) -> None:
    result = tested(TREE, TESTS, IDS)
    assert dict(result.outcomes) == dict(zip(IDS, (PASSED, FAILED, MISSING), strict=True))
    assert result.forgeable
    assert result.tree_hash_before == result.tree_hash_after != ""


HOSTILE_TREES = {
    "plug-in of the candidate": {"conftest.py": "def pytest_collection_modifyitems(items): items.clear()\n"},
    "configuration of the candidate": {"pytest.ini": "[pytest]\naddopts = --collect-only\n"},
    "start-up hook": {"sitecustomize.py": "import os; os._exit(0)\n", "usercustomize.py": "import os; os._exit(0)\n"},
    "module before the standard library": {"random.py": "raise SystemExit(0)\n", "json.py": "raise SystemExit(0)\n"},
    "pytest of the candidate": {"pytest.py": "def main(*a, **k): return 0\n", "_pytest/__init__.py": ""},
    "tests of the candidate": {"tests/test_m.py": "def test_one(): pass\ndef test_two(): pass\n"},
    "tests beside the tests": {"tests/__init__.py": "", "tests/conftest.py": "import os; os._exit(0)\n"},
    "changes tests while they run": {
        "pkg/m.py": "try: open('tests/test_m.py', 'w').close()\nexcept OSError: pass\ndef f(): return 1\n"
    },
}


@pytest.mark.parametrize("files", HOSTILE_TREES.values(), ids=HOSTILE_TREES)
def test_the_candidates_tree_does_not_decide_what_its_tests_say(tested: Tested, files: dict[str, str]) -> None:
    tests = {"tests/test_m.py": "import json, random\n" + TESTS["tests/test_m.py"]}
    result = tested({**TREE, **files}, tests, IDS)
    assert dict(result.outcomes) == dict(zip(IDS, (PASSED, FAILED, MISSING), strict=True)), result.run


@pytest.mark.parametrize(
    "ending", ["import os; os._exit(0)", "raise SystemExit(0)", "import os; os.kill(os.getpid(), 9)"]
)
def test_a_candidate_that_ends_early_passes_nothing(tested: Tested, ending: str) -> None:
    tree = {**TREE, "pkg/m.py": f"{ending}\ndef f(): return 1\n"}
    outcomes = tested(tree, TESTS, IDS).outcomes
    assert PASSED not in outcomes.values()


@pytest.mark.parametrize(
    "body",
    [
        "import pytest\n@pytest.mark.skip\ndef test_x(): pass",
        "import pytest\n@pytest.mark.xfail\ndef test_x(): assert 0",
        "import pytest\n@pytest.mark.xfail\ndef test_x(): pass",
        "import pytest\n@pytest.fixture\ndef f():\n    yield\n    assert 0\ndef test_x(f): pass",
        "import pytest\n@pytest.fixture\ndef f(): assert 0\ndef test_x(f): pass",
        "def test_x(): assert 0",
        "raise ImportError",
    ],
)
def test_only_a_test_that_passed_has_passed(tested: Tested, body: str) -> None:
    result = tested({}, {"test_a.py": body}, ["test_a.py::test_x"])
    assert result.outcomes["test_a.py::test_x"] is not PASSED


def test_a_session_goes_on_after_its_tests(within: Within) -> None:
    async def steps(session: SandboxSession) -> None:
        await session.write("pkg/m.py", b"def f(): return 2\n")
        result = await session.run_tests(TESTS, IDS, limits=LIMITS)
        assert result.outcomes[IDS[1]] is PASSED
        assert await session.list() == ["a.txt", "pkg/"]
        await session.write("more", b"1")
        assert (await session.diff()).keys() == {"pkg/m.py", "more"}

    within(steps)


@on_the_spot
def test_a_lost_session_says_so(within: Within) -> None:
    async def steps(session: SandboxSession) -> None:
        assert isinstance(session, Session)
        session._ground.slot.kill()
        with pytest.raises(SandboxError, match="lost"):
            await session.read("a.txt")
        with pytest.raises(SandboxError, match="lost"):
            await session.exec(["true"], limits=LIMITS)

    within(steps)


def test_a_closed_session_says_so(sandbox: LocalSandbox | RemoteSandbox) -> None:
    async def closed() -> None:
        async with opened(sandbox) as session:
            pass
        await session.close()
        with pytest.raises(SandboxError, match="closed"):
            await session.list()

    asyncio.run(closed())


def test_a_tree_that_does_not_fit_or_leaves_is_refused_and_the_slot_is_free_again() -> None:
    async def run() -> None:
        sandbox = LocalSandbox(sessions=1)
        for tree in ({"big": "x" * (9 << 20)}, {"../out": ""}):
            with pytest.raises(UserError):
                await sandbox.session(tree, limits=LIMITS)
        session = await sandbox.session({}, limits=LIMITS)
        assert await session.list() == []
        await session.close()
        await sandbox.close()

    asyncio.run(run())


def test_nothing_of_a_session_is_there_for_the_next_one() -> None:
    async def run() -> None:
        sandbox = LocalSandbox(sessions=1)
        first = await sandbox.session({"mine": "secret"}, limits=LIMITS, background=True)
        await first.exec(["sh", "-c", "echo secret > /tmp/left; sleep 60 &"], limits=LIMITS)
        await first.close()
        second = await sandbox.session({}, limits=LIMITS)
        found = await second.exec(["sh", "-c", "ls -A . /tmp /run/box; kill -0 -1 2>&1"], limits=LIMITS)
        assert "left" not in found.stdout
        assert "mine" not in found.stdout
        await second.close()
        await sandbox.close()

    asyncio.run(run())


def test_layers_are_out_of_a_programs_sight(within: Within) -> None:
    async def steps(session: SandboxSession) -> None:
        await session.snapshot()
        found = await sh(
            session, "find /run/box -not -path '/run/box/work/pkg*'; ls -d /run/box/work/0 /run/box/work/w1 2>/dev/null"
        )
        assert sorted(found.stdout.split()) == ["/run/box", "/run/box/tmp", "/run/box/work", "/run/box/work/a.txt"]

    within(steps)
