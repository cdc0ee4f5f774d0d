"""One writer to a run: an exclusive lock that names its holder and ends with its process, however that ends.

An flock(2) on the run's `lock` file; the holder is written into the file for people to read. The lock belongs to the
open file, so a child started by fork alone would keep it: workers are started by exec, which closes it.
It does not guard readers.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from posttrain.core.errors import RunLockedError
from posttrain.store.files import storing


class RunLock:
    """Held from construction to `release`, or as a context manager. Raises `RunLockedError` with the holder."""

    def __init__(self, path: Path) -> None:
        with storing(path):
            self._descriptor: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._descriptor)
            raise RunLockedError(
                f"the run {path.parent} is in use by {_holder(path)}: wait for it or end it first"
            ) from None
        with storing(path):
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, _describe_self(), 0)

    def release(self) -> None:
        """Let another process in; a second call does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> RunLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _describe_self() -> bytes:
    started = datetime.now(UTC).isoformat(timespec="seconds")
    return json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": started}).encode()


def _holder(path: Path) -> str:
    try:
        holder = json.loads(path.read_bytes())
        return f"process {holder['pid']} on {holder['host']} (since {holder['since']})"
    except (OSError, ValueError, KeyError):  # it holds the lock and has not yet written its name
        return "another process"
