"""The world outside while attacks run: secrets that must stay, a file that must not change, listeners nobody reaches.

It belongs to the suite; a sandbox knows none of it. What a hostile program is told is `told()`: places to aim at, never
the secret and never the right answer.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from posttrain.core.types import Json

VARIABLE = "POSTTRAIN_CANARY"
_CALM = "nobody has touched this"


@dataclass(frozen=True)
class World:
    folder: Path
    secret: str
    right_answer: int
    """What a verdict would be compared with; known to nobody inside."""
    listeners: tuple[socket.socket, ...]
    """TCP, UDP, socket file, abstract name."""
    victim: subprocess.Popen[bytes]

    @property
    def canary(self) -> Path:
        return self.folder / "posttrain-canary"

    def told(self) -> dict[str, Json]:
        tcp, udp, _, abstract = self.listeners
        return {
            "secret_file": str(self.folder / "posttrain-canary-secret"),
            "canary": str(self.canary),
            "folder": str(self.folder),
            "port": tcp.getsockname()[1],
            "udp_port": udp.getsockname()[1],
            "socket_path": str(self.folder / "socket"),
            "abstract": abstract.getsockname()[1:].decode(),
            "pid": self.victim.pid,
        }

    def damage(self, said: str) -> str:
        """What is wrong outside, given all that a program said; empty where nothing is. What was touched is mended."""
        if self.secret in said:
            return "a secret of the host came out"
        if any(_reached(listener) for listener in self.listeners):
            return "a listener of the host was reached"
        if self.victim.poll() is not None:
            return "a process of the host was ended"
        if self._files_changed():
            self.lay()
            return "a file of the host was changed"
        return ""

    def lay(self) -> None:
        """Everybody may read and write: what protects these files is the sandbox, not their modes."""
        for path in self.folder.iterdir():
            if path.name not in ("socket", "posttrain-canary-secret"):
                path.unlink()
        self.canary.write_text(_CALM)
        secret = self.folder / "posttrain-canary-secret"
        secret.write_text(self.secret)
        for path in (self.canary, secret):
            path.chmod(0o666)

    def _files_changed(self) -> bool:
        expected = {"posttrain-canary", "posttrain-canary-secret", "socket"}
        names = {path.name for path in self.folder.iterdir()}
        return names != expected or self.canary.read_text() != _CALM


@contextlib.contextmanager
def planted_secret() -> Iterator[str]:
    """A secret in the environment of this process, until the end."""
    before, secret = os.environ.get(VARIABLE), secrets.token_hex(16)
    os.environ[VARIABLE] = secret
    try:
        yield secret
    finally:
        del os.environ[VARIABLE]
        if before is not None:
            os.environ[VARIABLE] = before


@contextlib.contextmanager
def world(secret: str) -> Iterator[World]:
    """Build it; everything is taken back at the end."""
    folder = Path(tempfile.mkdtemp(prefix="posttrain-world-"))
    folder.chmod(0o777)
    victim = subprocess.Popen(
        [sys.executable, "-S", "-c", "import time; time.sleep(1e6)"],
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # a terminal's Ctrl-C is ours to handle, and it is ended below
    )
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        stack.callback(victim.wait)
        stack.callback(victim.kill)
        listeners = tuple(stack.enter_context(listener) for listener in _listeners(folder))
        made = World(folder, secret, secrets.randbelow(1 << 60) + (1 << 60), listeners, victim)
        made.lay()
        yield made


def _listeners(folder: Path) -> Iterator[socket.socket]:
    for family, kind, address in (
        (socket.AF_INET, socket.SOCK_STREAM, ("0.0.0.0", 0)),
        (socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
        (socket.AF_UNIX, socket.SOCK_STREAM, str(folder / "socket")),
        (socket.AF_UNIX, socket.SOCK_STREAM, f"\0posttrain-{secrets.token_hex(8)}"),
    ):
        listener = socket.socket(family, kind)
        listener.setblocking(False)
        listener.bind(address)
        if kind is socket.SOCK_STREAM:
            listener.listen()
        if isinstance(address, str) and address.startswith("/"):
            Path(address).chmod(0o777)
        yield listener


def _reached(listener: socket.socket) -> bool:
    try:
        if listener.type is socket.SOCK_DGRAM:
            listener.recv(64)
        else:
            listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True
