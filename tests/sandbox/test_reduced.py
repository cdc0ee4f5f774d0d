"""Reduced isolation: opted in to, refused where it cannot hold, and nothing left of a program; as an ordinary user."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ordinary_user import USER, needs_ordinary_user, run_as_ordinary_user

from posttrain.core import registry
from posttrain.core.errors import ConfigError, IsolationUnavailableError, SandboxError
from posttrain.core.sandboxing import IsolationTier, ResultClass, SandboxLimits
from posttrain.sandbox.inside import descendants, headcount, warden
from posttrain.sandbox.inside.folder import Folder
from posttrain.sandbox.local import LocalSandbox
from posttrain.sandbox.probe import slot_isolation
from posttrain.sandbox.status import missing


def scenario(name: str) -> Any:
    done = run_as_ordinary_user("-m", "tests.sandbox.reduced_scenarios", name)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@needs_ordinary_user
def test_programs_run_and_every_answer_says_how_little_isolated_they_were() -> None:
    found = scenario("use")
    assert found["value"] == 5.0
    assert set(found["tiers"]) == {IsolationTier.REDUCED}
    variables = ["HOME", "LANG", "MALLOC_ARENA_MAX", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PATH"]
    more = ["PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "TMPDIR"]
    assert found["stdout"] == f"{[*variables, *more]} laid\n"
    assert found["concurrency"] == 1
    sentences = "\n".join(found["missing"])
    assert all(what in sentences for what in ("no namespaces", "no disk of its own", "no user of its own"))
    assert found["boxes"] == []


@needs_ordinary_user
def test_files_go_with_their_program_and_no_link_is_followed() -> None:
    found = scenario("leave_files")
    assert found["left"] == ""
    assert found["seen"] == [["tmp", "work"], [], []]
    assert (found["kept"], found["mode"], found["boxes"]) == ({"kept": "kept"}, 0o755, [])


@needs_ordinary_user
def test_processes_go_with_their_program_however_they_hide() -> None:
    for found in scenario("leave_processes").values():
        assert found == {"left": 0, "alive": True, "at the end": 0}


class Crowd:
    """Children of a server, each of which forks once more before it dies, as long as their number allows."""

    def __init__(self, limit: int) -> None:
        self.limit, self.alive, self.dead = limit, {1}, set[int]()

    def kill(self, pid: int, number: int) -> None:
        assert number == signal.SIGKILL
        if pid in self.alive:
            self.alive.remove(pid)
            self.dead.add(pid)
            if len(self.alive | self.dead) < self.limit:
                self.alive.add(max(self.alive | self.dead) + 1)

    def waitid(self, kind: int, pid: int, flags: int) -> None:
        assert kind == os.P_PID
        assert pid in self.dead
        assert flags & os.WNOWAIT, "whoever is reaped makes room for another"


@pytest.mark.parametrize("limit", [1, 2, 20])
def test_those_who_fork_faster_than_they_are_found_run_out_of_processes(
    monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    crowd = Crowd(limit)
    monkeypatch.setattr(descendants, "_children", lambda: crowd.alive | crowd.dead)
    monkeypatch.setattr(os, "kill", crowd.kill)
    monkeypatch.setattr(os, "waitid", crowd.waitid)
    assert descendants.kill_descendants()
    assert (crowd.alive, len(crowd.dead)) == (set(), limit)
    crowd.dead.clear()
    assert not descendants.kill_descendants()


def test_what_a_server_had_no_time_to_delete_goes_with_its_folder(tmp_path: Path) -> None:
    top = tmp_path / "box"
    folder = Folder(str(top))
    folder.make({"numpy": "/nowhere"})
    for place in ("doomed/1/left", "doomed/2", "box/work/new"):
        (top / place).mkdir(parents=True)
        (top / place / "file").write_text("left")
    Folder(str(top)).remove()
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def out_of_sight() -> Iterator[None]:
    """Processes of the same user that the /proc of a scenario does not show."""
    if os.geteuid() != 0:
        yield
        return
    sleepers = [subprocess.Popen(["sleep", "600"], user=USER, group=USER, extra_groups=[]) for _ in range(5)]
    yield
    for sleeper in sleepers:
        sleeper.kill()
        sleeper.wait()


@needs_ordinary_user
@pytest.mark.usefixtures("out_of_sight")
def test_a_program_gets_its_number_of_processes_whatever_its_user_has() -> None:
    assert scenario("count_processes") == [6, 6]


@given(num_others=st.integers(0, 5000), last=st.integers(1, 5000))
def test_processes_are_counted_by_trying(num_others: int, last: int) -> None:
    tried: list[int] = []

    def can_fork(limit: int) -> bool:
        tried.append(limit)
        return limit > num_others

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(headcount, "_can_fork", can_fork)
        count = headcount.Headcount()
        count._last = last
        assert count.take() == num_others
        tried.clear()
        assert count.take() == num_others
    assert len(tried) <= 2


def test_a_server_that_may_never_fork_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headcount, "_can_fork", lambda limit: False)
    with pytest.raises(OSError, match="cannot fork"):
        headcount.Headcount().take()


@needs_ordinary_user
@pytest.mark.parametrize("name", ["kill_server", "kill_supervisor", "cancel"])
def test_nothing_is_left_where_a_server_is_ended(name: str) -> None:
    found = scenario(name)
    assert (found["left"], found["boxes"]) == ([], [])
    assert found.get("class", ResultClass.INFRASTRUCTURE_ERROR) == ResultClass.INFRASTRUCTURE_ERROR


@needs_ordinary_user
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("without_landlock", "it needs Landlock's ABI 3 or later, and this kernel has none"),
        ("unfiltered", "system calls are filtered"),
        ("filtered_as_in_namespaces", "modes and times of files cannot be changed, there are no sockets"),
        ("everything_readable", "files of the host cannot be read"),
    ],
)
def test_where_a_wall_is_missing_it_is_refused_with_a_sentence(name: str, sentence: str) -> None:
    found = scenario(name)
    assert found.startswith("isolation 'reduced' is not available here")
    assert sentence in found


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be refused for being root")
def test_root_is_refused() -> None:
    with pytest.raises(IsolationUnavailableError, match=r"not for root.* run this as an ordinary user"):
        _ = LocalSandbox(isolation="reduced").tier


def test_it_is_an_option_and_never_more_than_one_program_at_a_time() -> None:
    assert registry.build("sandbox", {"name": "local", "isolation": "reduced", "concurrency": 1}).concurrency == 1
    with pytest.raises(ConfigError, match="is 2; with isolation 'reduced' it must be 1"):
        LocalSandbox(concurrency=2, isolation="reduced")


def test_verbs_that_need_namespaces_are_refused_by_name() -> None:
    sandbox = LocalSandbox(isolation="reduced")
    with pytest.raises(SandboxError, match="no verb 'test' in reduced isolation"):
        asyncio.run(sandbox.test({}, {}, ["a"], limits=SandboxLimits()))
    with pytest.raises(SandboxError, match="no verb 'session' in reduced isolation"):
        asyncio.run(sandbox.session({}))


def test_an_older_landlock_is_a_sentence_more_for_each_thing_it_lacks() -> None:
    newest = dataclasses.replace(slot_isolation(), tier=IsolationTier.REDUCED, cgroup=True, landlock_abi=6)
    assert len(missing(newest)) == 3
    *_, scopes = missing(dataclasses.replace(newest, landlock_abi=5))
    assert "send signals to all processes of your user" in scopes
    *_, network, _ = missing(dataclasses.replace(newest, landlock_abi=3))
    assert "no network rules" in network
    assert "no control group" in missing(dataclasses.replace(newest, cgroup=False))[-1]


def test_all_processes_of_a_user_are_never_ended_for_those_of_a_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "kill", lambda *_: pytest.fail("it would have ended everything"))
    with pytest.raises(RuntimeError, match="no namespace here"):
        warden.kill_all()
