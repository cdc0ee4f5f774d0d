"""`posttrain sandbox …`: what is printed, and with which exit code."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from posttrain.core.errors import SandboxError
from posttrain.core.sandboxing import CallResult, ResultClass, SandboxLimits
from posttrain.sandbox.local import LocalSandbox
from posttrain.sandbox.probe import slot_isolation
from posttrain.sandbox.remote import RemoteSandbox

TOKEN = "a-token-that-only-tests-have"


def sandbox(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "posttrain", "sandbox", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return sandbox("run", *arguments)


@contextlib.contextmanager
def served(folder: Path, *options: str) -> Iterator[tuple[str, Path, subprocess.Popen[str]]]:
    """`posttrain sandbox serve` on a free port: its address, its token file, and its process."""
    token_file = folder / "token"
    token_file.write_text(TOKEN)
    command = [sys.executable, "-m", "posttrain", "sandbox", "serve", "--port", "0", *options]
    process = subprocess.Popen([*command, "--token-file", str(token_file)], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        first = process.stderr.readline()
        yield next(word for word in first.split() if word.startswith("http")).rstrip(","), token_file, process
    finally:
        process.send_signal(signal.SIGTERM)
        process.stderr.read()
        process.stderr.close()
        process.wait()


@pytest.mark.parametrize(
    ("source", "result_class", "exit_code"),
    [
        ("print(input())", "ok", 0),
        ("raise SystemExit(3)", "program_error", 3),
        ("while True: pass", "time_limit", None),
        ("#!/bin/sh\nread x; echo $x", "ok", 0),
    ],
)
def test_one_json_value_and_success_whatever_the_program_did(
    tmp_path: Path, source: str, result_class: str, exit_code: int | None
) -> None:
    (tmp_path / "program").write_text(source)
    (tmp_path / "input").write_text("hello\n")
    done = run(str(tmp_path / "program"), "--stdin", str(tmp_path / "input"), "--wall-s", "1", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["class"], found["exit_code"]) == (result_class, exit_code)
    assert found["stdout"] == ("hello\n" if result_class == "ok" else "")
    assert {"stderr", "wall_s", "cpu_s", "peak_memory_mib", "tier"} <= found.keys()


@pytest.mark.parametrize("option", [["--wall-s", "0"], ["--memory-mib", "-1"], ["--sandbox", "locale"]])
def test_bad_input_is_the_users(tmp_path: Path, option: list[str]) -> None:
    (tmp_path / "program.py").write_text("")
    assert run(str(tmp_path / "program.py"), *option).returncode == 2


def test_a_program_that_cannot_be_read_is_named_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "latin.py").write_bytes("print('é')".encode("latin-1"))
    for name, reason in (("missing.py", "cannot be read: No such file"), ("latin.py", "is not a text file in UTF-8")):
        done = run(str(tmp_path / name))
        assert done.returncode == 2
        assert done.stderr == f"posttrain: {tmp_path / name} {reason}\n" or reason in done.stderr


def test_status_says_what_isolation_there_is() -> None:
    found, isolation = json.loads(sandbox("status", "--json").stdout), slot_isolation()
    assert (found["sandbox"], found["tier"], found["kernel"]) == ("local", isolation.tier, os.uname().release)
    assert (found["landlock_abi"], found["cgroup"]) == (isolation.landlock_abi, isolation.cgroup)
    assert found["trial_s"] > 0
    assert found["start_s"] > 0
    assert found["figures"]["ended"] == {"ok": 2}
    assert any("Delegate=yes" in sentence for sentence in found["missing"]) is not isolation.cgroup


def test_status_for_people_names_the_tier_and_what_is_missing() -> None:
    done = sandbox("status")
    assert done.returncode == 0, done.stderr
    assert slot_isolation().tier in done.stdout
    assert "Landlock ABI" in done.stdout
    assert done.stdout.count("missing:") == len(json.loads(sandbox("status", "--json").stdout)["missing"])


def test_status_of_a_sandbox_that_cannot_be_asked_is_its_tier_and_a_trial() -> None:
    found = json.loads(sandbox("status", "--sandbox", "bubblewrap", "--json").stdout)
    assert found.keys() == {"sandbox", "tier", "trial_s"}


@pytest.mark.parametrize("name", ["locale", "{name = ", '{nome = "local"}', '{name = "local", no = 1}'])
def test_a_sandbox_that_is_not_there_is_the_users_mistake(name: str) -> None:
    done = sandbox("status", "--sandbox", name)
    assert (done.returncode, done.stderr.count("posttrain: ")) == (2, 1)


def test_a_served_sandbox_is_used_asked_and_drained(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("print('from far')")
    with served(tmp_path, "--concurrency", "1") as (url, token_file, process):
        assert url.startswith("http://127.0.0.1:")
        spec = f'{{name = "remote", url = "{url}", token_file = "{token_file}"}}'
        assert run(str(tmp_path / "program.py"), "--sandbox", spec).stdout == "from far\n"
        found = json.loads(sandbox("status", "--sandbox", spec, "--json").stdout)
        assert (found["sandbox"], found["concurrency"], found["figures"]["ended"]) == ("remote", 1, {"ok": 3})

        result = asyncio.run(_told_to_end_while_it_runs(RemoteSandbox(url, token_file), process))
        assert (result.run.result_class, result.outputs[0].value) == (ResultClass.OK, "slept")
        assert process.wait() == 0


async def _told_to_end_while_it_runs(client: RemoteSandbox, process: subprocess.Popen[str]) -> CallResult:
    source = "import time\ndef f(): time.sleep(1.0); return 'slept'"
    try:
        session = await client.session({"a": "x"})
        assert await session.read("a") == b"x"
        asked = asyncio.ensure_future(client.call(source, "f", [[]], limits=SandboxLimits(wall_s=60.0)))
        while (await asyncio.to_thread(client.status)).figures.running == 0:
            await asyncio.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        result = await asked
        with pytest.raises(SandboxError, match="the session is lost"):
            await session.read("a")
        return result
    finally:
        await client.close()


def test_a_served_sandbox_does_as_much_at_once_as_the_local_one(tmp_path: Path) -> None:
    with served(tmp_path) as (url, token_file, _):
        assert RemoteSandbox(url, token_file).status().concurrency == LocalSandbox().status().concurrency


@pytest.mark.parametrize(("option", "amount"), [("--sessions", "0"), ("--max-waiting", "-1"), ("--concurrency", "0")])
def test_amounts_of_a_server_that_will_not_do_are_the_users(tmp_path: Path, option: str, amount: str) -> None:
    (tmp_path / "token").write_text(TOKEN)
    done = sandbox("serve", "--port", "0", "--token-file", str(tmp_path / "token"), option, amount)
    assert (done.returncode, f"is {amount}; it must be at least" in done.stderr) == (2, True)


@pytest.mark.parametrize("token", [None, "", "short"])
def test_nothing_is_served_without_a_token(tmp_path: Path, token: str | None) -> None:
    if token is not None:
        (tmp_path / "token").write_text(token)
    assert sandbox("serve", "--port", "0").returncode == 2
    done = sandbox("serve", "--port", "0", "--token-file", str(tmp_path / "token"))
    assert (done.returncode, "token file" in done.stderr) == (2, True)
