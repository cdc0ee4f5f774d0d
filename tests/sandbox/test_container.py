"""Executions in containers, end to end: by a fake docker with real walls, and by a real one where there is one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.sandbox.container_fakes import FakeEngine

from posttrain.core.errors import ConfigError, IsolationUnavailableError, SandboxError
from posttrain.core.sandboxing import CallResult, IsolationTier, OutputStatus, ResultClass, RunResult, SandboxLimits
from posttrain.sandbox import container_execution, watch
from posttrain.sandbox.conformance import check_conformance
from posttrain.sandbox.container import ContainerSandbox
from posttrain.sandbox.container_command import Owner, name_of
from posttrain.sandbox.container_engine import new_name

LIMITS = SandboxLimits(wall_s=20.0, cpu_s=5.0, memory_mib=128, processes=8, output_kib=64, disk_mib=4)
SHORT = SandboxLimits(wall_s=0.3)
SAME = "def f(x): return x"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeEngine]:
    fake = FakeEngine(tmp_path_factory.mktemp("docker"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{fake.bin}:/usr/bin:/bin")
        assert ContainerSandbox().tier  # so that what a test breaks is not broken for the look
        yield fake


@pytest.fixture
def fake(shared: FakeEngine) -> Iterator[FakeEngine]:
    """Has found its tier already."""
    yield shared
    shared.fail()
    assert shared.containers() == []


@pytest.fixture
def new_fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    """Never used."""
    fake = FakeEngine(tmp_path)
    monkeypatch.setenv("PATH", f"{fake.bin}:/usr/bin:/bin")
    return fake


def call(source: str, *arguments: Any, limits: SandboxLimits = LIMITS) -> CallResult:
    return asyncio.run(ContainerSandbox().call(source, "f", [arguments], limits=limits))


def run(*argv: str, limits: SandboxLimits = LIMITS) -> RunResult:
    return asyncio.run(ContainerSandbox().run(argv, limits=limits))


# ── honest programs ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["docker", "podman"])
def test_it_conforms(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeEngine(tmp_path, name)
    monkeypatch.setenv("PATH", f"{fake.bin}:/usr/bin:/bin")
    assert [found for found in asyncio.run(check_conformance(ContainerSandbox())) if not found] == []
    assert fake.containers() == []


@pytest.mark.parametrize("minor", [9, 10, 11, 12, 13, 14])
def test_the_images_interpreter_may_be_of_another_version(
    minor: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = python_of(minor)
    fake = FakeEngine(tmp_path, python=python)
    monkeypatch.setenv("PATH", f"{fake.bin}:/usr/bin:/bin")
    values: list[Any] = [None, True, 1 << 70, -0.0, "ünï", [(1, ("a",))], {"a": {"b": []}}]
    result = call("import sys\ndef f(*values): return sys.version_info[1], list(values)", *values)
    assert repr(result.outputs[0].value) == repr((minor, values))


def python_of(minor: int) -> Path:
    """Skips the test where there is none."""
    places = os.environ["PATH"].split(":") + [str(path) for path in Path(sys.base_prefix).parent.glob("*/bin")]
    for place in places:
        python = Path(place, f"python3.{minor}").resolve()
        is_whole = python.is_file() and (python.parent / "python3").resolve() == python
        if is_whole and python.read_bytes()[:4] == b"\x7fELF":  # and no script that looks for it elsewhere
            return python
    pytest.skip(f"there is no Python 3.{minor} here")


@pytest.mark.parametrize("name", ["docker", "podman"])
def test_a_real_engine_conforms(name: Any) -> None:
    sandbox = ContainerSandbox(program=name)
    try:
        assert sandbox.tier
    except IsolationUnavailableError as error:
        pytest.skip(str(error))
    assert [found for found in asyncio.run(check_conformance(sandbox)) if not found] == []


def test_the_tier_that_was_found_is_in_every_result(fake: FakeEngine) -> None:
    tier = IsolationTier.FULL if os.getuid() else IsolationTier.ROOT_IN_CONTAINER
    assert ContainerSandbox().tier is tier
    assert call(SAME, 1).run.tier is run("true").tier is tier


def test_the_order_of_sets_is_the_same_each_time(fake: FakeEngine) -> None:
    source = "def f(): return list({'alpha', 'beta', 'gamma', 'delta', 'epsilon'})"
    assert len({str(call(source).outputs[0].value) for _ in range(3)}) == 1


def test_nothing_of_the_host_is_in_the_environment(fake: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not of ours, and not the proxies that an engine adds."""
    monkeypatch.setenv("TOKEN_OF_THE_HOST", "secret")
    listed = run("sh", "-c", "env; cat /proc/self/environ /proc/1/environ")
    assert "HOME=/tmp/work" in listed.stdout
    assert "secret" not in listed.stdout
    look = "import os\ndef f(): return [str(os.environ), *map(said, ('self', '1'))]\n"
    look += "def said(pid):\n    try: return open(f'/proc/{pid}/environ').read()\n    except OSError: return ''"
    assert "secret" not in str(call(look).outputs[0].value)


# ── hostile programs ──────────────────────────────────────────────────────────────────────────────────────────

ATTACK_ON_THE_FIRST = """
import os, signal
def f():
    taken = []
    for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGSEGV):
        os.kill(1, number)
    for name in range(20):
        for path in (f"/proc/1/fd/{name}", f"/proc/self/../1/fd/{name}", "/proc/1/mem"):
            try: taken.append(os.open(path, os.O_WRONLY))
            except OSError: pass
    for fd in range(5, 256):
        try: os.write(fd, b"R\\0\\0\\0\\x0f0 0 1 1 0 0\\n")
        except OSError: continue
        else: taken.append(fd)
    return taken
"""


def test_the_first_process_cannot_be_taken_or_ended(fake: FakeEngine) -> None:
    result = call(ATTACK_ON_THE_FIRST)
    assert (result.run.result_class, result.outputs[0].value) == (ResultClass.OK, [])


def test_what_looks_like_a_frame_is_output(fake: FakeEngine) -> None:
    forged = "R\0\0\0\x0f0 0 1 1 0 0\n" + "A\0\0\0\1R"
    result = run("python3", "-c", f"import sys\nsys.stdout.write({forged!r})\nsys.stdout.flush()\nsys.exit(3)")
    assert (result.result_class, result.exit_code, result.stdout) == (ResultClass.PROGRAM_ERROR, 3, forged)


def test_processes_that_a_program_leaves_hold_nothing_up(fake: FakeEngine) -> None:
    result = run("sh", "-c", "setsid sleep 1000 & sleep 1000 & echo done", limits=SandboxLimits(wall_s=20.0))
    assert (result.result_class, result.stdout) == (ResultClass.OK, "done\n")


def test_a_program_that_reads_nothing_and_writes_much_is_not_in_its_own_way(fake: FakeEngine) -> None:
    """Its inputs fill a pipe while its output fills another."""
    source = "import sys\nsys.stdout.write('x' * 300_000)\nsys.stdout.flush()\ndef f(x): return len(x)"
    limits = SandboxLimits(wall_s=20.0, output_kib=1024)
    result = call(source, "y" * 500_000, limits=limits)
    assert (result.run.result_class, result.outputs[0].value) == (ResultClass.OK, 500_000)
    assert len(result.run.stdout) == 300_000


def test_what_a_program_wrote_before_its_end_arrives_whole(fake: FakeEngine) -> None:
    """More of it waits in the pipe than is passed on at once."""
    source = "import fcntl, os\nfcntl.fcntl(1, fcntl.F_SETPIPE_SZ, 1 << 20)\nos.write(1, b'x' * 900_000)\nos._exit(0)"
    result = run("python3", "-c", source, limits=SandboxLimits(wall_s=20.0, output_kib=1024))
    assert (result.result_class, len(result.stdout)) == (ResultClass.OK, 900_000)


# ── ends ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_ended_program_is_measured_and_nobody_has_to_be_killed(fake: FakeEngine) -> None:
    kills = len(fake.asked("kill"))
    result = call("block = bytearray(40 << 20)\nwhile True: pass", limits=SHORT).run
    assert result.result_class is ResultClass.TIME_LIMIT
    assert result.cpu_s > 0
    assert result.peak_memory_mib > 40
    assert len(fake.asked("kill")) == kills


def test_a_container_that_does_not_notice_its_end_is_killed(fake: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container_execution, "_GRACE_S", 0.1)
    kills = len(fake.asked("kill"))
    fake.fail(input_stays_open=True)
    assert run("sleep", "1000", limits=SHORT).result_class is ResultClass.TIME_LIMIT
    assert len(fake.asked("kill")) == kills + 1


def test_memory_of_all_processes_together_is_told_by_the_report(fake: FakeEngine) -> None:
    def tell(home: Path) -> None:
        (home / "memory.events").write_text("low 0\noom_kill 2\n")

    wait = "while ! grep -q 'oom_kill 2' /sys/fs/cgroup/memory.events; do sleep 0.05; done"
    assert while_it_runs(fake, ["sh", "-c", wait], tell).result_class is ResultClass.MEMORY_LIMIT


@pytest.mark.parametrize(
    ("out_of_memory", "ends"), [(True, ResultClass.MEMORY_LIMIT), (False, ResultClass.INFRASTRUCTURE_ERROR)]
)
def test_the_engine_is_asked_how_a_first_process_ended(
    fake: FakeEngine, out_of_memory: bool, ends: ResultClass
) -> None:
    def end(home: Path) -> None:
        if out_of_memory:
            (home / "oom").touch()
        fake.command("kill", home.name)

    assert while_it_runs(fake, ["sleep", "1000"], end).result_class is ends


def while_it_runs(fake: FakeEngine, argv: list[str], action: Callable[[Path], None]) -> RunResult:
    """`action` gets the folder of each container whose program has begun, once."""

    async def watched() -> RunResult:
        running = asyncio.create_task(ContainerSandbox().run(argv, limits=LIMITS))
        seen: set[str] = set()
        while not running.done():
            await asyncio.sleep(0.02)
            for name in set(fake.containers()) - seen:
                if has_begun(fake, name, argv):
                    seen.add(name)
                    action(fake.home / "containers" / name)
        return running.result()

    return asyncio.run(watched())


def has_begun(fake: FakeEngine, name: str, argv: list[str]) -> bool:
    """Whether a process with this command line comes of the container's."""
    first = fake.home / "containers" / name / "pid"
    return first.exists() and argv in command_lines_below(first.read_text())


def command_lines_below(pid: str) -> list[list[str]]:
    found = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        found.append(Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1])
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            found += command_lines_below(child)
    return found


# ── faults ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("code", [125, 126, 127])
def test_a_run_that_fails_is_tried_again_and_then_ours(fake: FakeEngine, code: int) -> None:
    fake.fail(runs_fail=code)
    before = len(fake.asked("run"))
    result = call(SAME, 1)
    assert result.run.result_class is ResultClass.INFRASTRUCTURE_ERROR
    assert "failed to create task: no space left on device." in result.run.reason
    assert result.outputs[0].status is OutputStatus.MISSING
    assert len(fake.asked("run")) == before + 2


def test_a_passing_fault_leaves_no_trace(fake: FakeEngine) -> None:
    fake.fail(runs_fail=[125, 1])
    assert call(SAME, 1).outputs[0].value == 1
    fake.fail(runs_fail=[125, 1])
    assert run("true").result_class is ResultClass.OK


def test_what_the_program_causes_is_tried_once(fake: FakeEngine) -> None:
    before = len(fake.asked("run"))
    assert run("sh", "-c", "exit 125").result_class is ResultClass.PROGRAM_ERROR
    assert len(fake.asked("run")) == before + 1


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("daemon_down", "Is the docker daemon running"),
        ("says_something_else", "where a frame should be"),
        ("shares_processes", "number 2, not 1: it shares its processes"),
        ("has_no_python", "No such file or directory"),
    ],
)
def test_a_fault_of_ours_is_told_in_the_engines_words(fake: FakeEngine, fault: str, reason: str) -> None:
    fake.fail(**{fault: True})
    result = run("true")
    assert result.result_class is ResultClass.INFRASTRUCTURE_ERROR
    assert reason in result.reason


def test_a_container_that_speaks_no_frames_is_ended_at_once(fake: FakeEngine) -> None:
    """And not when the time for setting it up is over, when it would be killed."""
    kills = len(fake.asked("kill"))
    fake.fail(says_something_else=True)
    assert run("sleep", "1000").result_class is ResultClass.INFRASTRUCTURE_ERROR
    assert len(fake.asked("kill")) == kills


def test_a_container_that_cannot_be_removed_is_no_result(fake: FakeEngine) -> None:
    fake.fail(cannot_be_removed=True)
    result = run("true")
    assert result.result_class is ResultClass.INFRASTRUCTURE_ERROR
    assert "could not be removed" in result.reason
    fake.fail()
    for name in fake.containers():
        fake.command("rm", "--force", "--volumes", name)


def test_a_container_that_never_starts_is_given_up(fake: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "SETUP_TIMEOUT_S", 0.2)
    monkeypatch.setattr(container_execution, "_LAST_WAIT_S", 0.2)
    fake.fail(never_starts=True)
    result = run("true")
    assert result.result_class is ResultClass.INFRASTRUCTURE_ERROR
    assert "did not become ready in time" in result.reason


# ── nothing is left ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("delay_s", [0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8])
def test_a_cancelled_execution_is_gone_when_the_await_returns(fake: FakeEngine, delay_s: float) -> None:
    async def cancelled() -> list[str]:
        running = asyncio.create_task(ContainerSandbox().run(["sleep", "1000"], limits=LIMITS))
        await asyncio.sleep(delay_s)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return fake.containers()

    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    assert asyncio.run(cancelled()) == []
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_a_cancelled_execution_that_does_not_end_is_killed(fake: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container_execution, "_GRACE_S", 0.2)
    fake.fail(input_stays_open=True)
    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(ContainerSandbox().run(["sleep", "1000"], limits=LIMITS), 1.0))
    assert fake.containers() == []


SUPERVISOR = """
import asyncio
from posttrain.core.sandboxing import SandboxLimits
from posttrain.sandbox.container import ContainerSandbox
asyncio.run(ContainerSandbox().run(["sleep", "1000"], limits=SandboxLimits(wall_s=900.0)))
"""


def test_a_container_ends_when_its_supervisor_is_killed_and_the_next_one_removes_it(new_fake: FakeEngine) -> None:
    supervisor = subprocess.Popen([sys.executable, "-c", SUPERVISOR], stderr=subprocess.DEVNULL)
    try:
        while not any(has_begun(new_fake, name, ["sleep", "1000"]) for name in new_fake.containers()):
            assert supervisor.poll() is None
            time.sleep(0.05)
    finally:
        supervisor.kill()
        supervisor.wait()
    [name] = new_fake.containers()
    while not new_fake.has(name, "ended"):
        time.sleep(0.05)
    assert ContainerSandbox().tier
    assert new_fake.containers() == []


def test_containers_of_the_living_and_of_other_machines_stay(new_fake: FakeEngine) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    machine = new_name().split("-")[1]
    names = {
        "ours": new_name(),
        "dead": name_of(Owner(machine, dead.pid, 1), "00"),
        "number taken again": name_of(Owner(machine, os.getpid(), 1), "00"),
        "other machine": name_of(Owner("00000000.1", dead.pid, 1), "00"),
        "somebody else's": "postgres",
    }
    for name in names.values():
        (new_fake.home / "containers" / name).mkdir()
    assert ContainerSandbox().tier
    assert new_fake.containers() == sorted([names["ours"], names["other machine"], names["somebody else's"]])


# ── what cannot be used ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("has_a_network", "there is no network"),
        ("can_be_written_to", "the system is read-only"),
        ("no_limit_of_processes", "processes are limited"),
        ("no_limit_of_memory", "memory is limited"),
        ("keeps_privileges", "the program has no privileges and can gain none"),
        ("shares_processes", "the first process is number 2"),
        ("daemon_down", "Is the docker daemon running"),
    ],
)
def test_a_wall_that_does_not_hold_is_named(new_fake: FakeEngine, fault: str, sentence: str) -> None:
    new_fake.fail(**{fault: True})
    with pytest.raises(IsolationUnavailableError, match=sentence):
        run("true")
    new_fake.fail()
    assert run("true").result_class is ResultClass.OK  # a failure is not for ever
    assert new_fake.containers() == []


def test_a_missing_image_is_named_with_the_command_that_pulls_it(new_fake: FakeEngine) -> None:
    with pytest.raises(IsolationUnavailableError, match=r"No such image: mine:1.*run `docker pull mine:1`"):
        assert ContainerSandbox(image="mine:1").tier
    assert new_fake.asked("pull") == new_fake.asked("run") == []


def test_an_image_with_places_of_its_own_to_write_is_refused(new_fake: FakeEngine) -> None:
    with pytest.raises(IsolationUnavailableError, match=r"declares volumes \(/data\)"):
        assert ContainerSandbox(image="with-volumes").tier


def test_the_first_that_is_installed_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(IsolationUnavailableError, match="needs docker or podman on the PATH"):
        assert ContainerSandbox().tier
    fake = FakeEngine(tmp_path, "podman")
    monkeypatch.setenv("PATH", f"{fake.bin}:/usr/bin:/bin")
    assert ContainerSandbox().tier
    with pytest.raises(IsolationUnavailableError, match="needs docker on the PATH"):
        assert ContainerSandbox(program="docker").tier


def test_verbs_and_profiles_that_are_not_there_are_refused_by_name() -> None:
    sandbox = ContainerSandbox()
    with pytest.raises(SandboxError, match="'container' has no verb 'test'"):
        asyncio.run(sandbox.test({}, {}, [], limits=LIMITS))
    with pytest.raises(SandboxError, match="'container' has no verb 'session'"):
        asyncio.run(sandbox.session({}))
    with pytest.raises(SandboxError, match="'container' has no profile 'numpy'"):
        asyncio.run(sandbox.call(SAME, "f", [[1]], limits=LIMITS, profile="numpy"))


@pytest.mark.parametrize(
    ("option", "value"), [("concurrency", 0), ("image", ""), ("image", "-v"), ("runtime", "--privileged")]
)
def test_options_are_checked(option: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"{option} of the sandbox 'container'"):
        ContainerSandbox(**{option: value})
