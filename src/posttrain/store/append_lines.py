"""A file of JSON lines that several processes append to: a line is there whole or not at all, and none is ever changed.

A writer waits for the others (flock(2) on a file beside it), cuts off what a killed writer left half-written, and
returns when its line is on the disk. Readers wait for nobody: they leave out a last line without its end.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from posttrain.core.errors import StoreError
from posttrain.core.types import SCHEMA_VERSION, Json
from posttrain.store.files import check_schema, plain, storing, sync


@contextlib.contextmanager
def appending(path: Path) -> Iterator[None]:
    """The right to append to `path`, waited for. What is read inside is what is there when one's own lines follow."""
    with storing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def append_lines(path: Path, rows: Sequence[Mapping[str, Json]]) -> None:
    """Within `appending(path)`. Raises `StorageFullError`, after which the file ends where it ended before."""
    text = "".join(
        json.dumps(plain({"schema_version": SCHEMA_VERSION, **row}), ensure_ascii=True) + "\n" for row in rows
    )
    with storing(path), path.open("ab", buffering=0) as file:
        length = len(_whole(path.read_bytes()))
        file.truncate(length)
        left = text.encode()
        try:
            while left:
                left = left[file.write(left) :]
            os.fsync(file.fileno())
        except OSError:
            file.truncate(length)
            raise
        sync(path.parent)


def read_lines(path: Path) -> list[dict[str, Json]]:
    """Every whole line. Raises `StoreError` for a damaged one, `UserError` for a newer posttrain's; no file is none."""
    if not path.exists():
        return []
    rows = []
    for number, line in enumerate(_whole(path.read_bytes()).splitlines(), start=1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise StoreError(f"line {number} of {path} is not JSON: {error}") from None
        if not isinstance(row, dict):
            raise StoreError(f"line {number} of {path} is no JSON object")
        check_schema(row.pop("schema_version", None), path)
        rows.append(row)
    return rows


def _whole(content: bytes) -> bytes:
    return content[: content.rfind(b"\n") + 1]
