"""Asking docker or podman: one short command at a time, its answer, or the sentence with which it refused."""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Sequence
from pathlib import Path

from posttrain.core.errors import SandboxError
from posttrain.sandbox.container_command import Engine, Owner, name_of, owner_of

_TIMEOUT_S = 30.0
_MAX_SAID = 500
_IS_GONE = ("no such container", "no container with name")


def ask(command: Sequence[str]) -> str:
    """Blocks. Raises `SandboxError`."""
    try:
        done = subprocess.run(
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        raise SandboxError(f"`{command[0]} {command[1]}` did not answer within {_TIMEOUT_S:.0f} s") from None
    except OSError as error:
        raise SandboxError(f"sandbox could not start {command[0]}: {error}") from error
    if done.returncode:
        raise SandboxError(sentence(done.stderr) or f"`{command[0]} {command[1]}` exited with {done.returncode}")
    return done.stdout.decode(errors="replace").strip()


def sentence(said: bytes) -> str:
    """What a command complained of, without its advice to read the manual."""
    lines = said.decode(errors="replace").splitlines()
    kept = [line.strip() for line in lines if line.strip() and not line.startswith(("See '", "Run '"))]
    return " ".join(kept)[-_MAX_SAID:]


def new_name() -> str:
    """For a container of this process."""
    return name_of(_owner(os.getpid()), secrets.token_hex(6))


def remove(engine: Engine, name: str) -> None:
    """Blocks until it is gone. Idempotent. Raises `SandboxError` where it is still there."""
    try:
        ask(engine.remove(name))
    except SandboxError as error:
        if not any(words in str(error).lower() for words in _IS_GONE):
            raise SandboxError(f"the container {name} could not be removed: {error}") from error


def remove_leftovers(engine: Engine) -> list[str]:
    """Containers whose process, of this machine, is gone; their names. Blocks. Raises `SandboxError`."""
    left = [name for name in ask(engine.list_names()).split() if _is_left(name)]
    for name in left:
        remove(engine, name)
    return left


def _is_left(name: str) -> bool:
    owner = owner_of(name)
    if owner is None or owner.machine != _machine():
        return False
    try:
        return _owner(owner.pid) != owner
    except (FileNotFoundError, ProcessLookupError):
        return True


def _owner(pid: int) -> Owner:
    started = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return Owner(_machine(), pid, int(started))


def _machine() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    return f"{boot}.{Path('/proc/self/ns/pid').stat().st_ino}"
