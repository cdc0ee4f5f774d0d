"""Files that are whole or absent: a temporary name in the same folder, fsync, rename, fsync of the folder.

A full disk is `StorageFullError`, any other refusal of the system `StoreError`; the old file, where there was one,
stays. One writer to a path at a time, which the run's lock sees to. It does not retry and does not make room.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from posttrain.core.errors import StorageFullError, StoreError, UserError
from posttrain.core.types import SCHEMA_VERSION, Json

MIB = 1 << 20


def write_bytes(path: Path, content: bytes) -> None:
    """Write or replace `path`; a kill at any moment leaves the old file or the new one."""
    temporary = temporary_name(path)
    with storing(path):
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        sync(path.parent)


def append_bytes(path: Path, content: bytes) -> None:
    """Add to the end of `path`, durably. Where the system refuses, the file ends as it did before."""
    with storing(path), path.open("ab", buffering=0) as file:
        length = file.tell()
        try:
            while content:  # a write that meets the end of the room is short; the one after it is refused
                content = content[file.write(content) :]
            os.fsync(file.fileno())
        except OSError:
            file.truncate(length)
            raise


def write_json(path: Path, content: Mapping[str, Json]) -> None:
    """Write plain data with its schema version; numbers that are not finite become null."""
    text = json.dumps(plain({"schema_version": SCHEMA_VERSION, **content}), indent=2, ensure_ascii=False)
    write_bytes(path, f"{text}\n".encode())


def read_json(path: Path) -> dict[str, Json]:
    """What `write_json` wrote, without its schema version.

    Raises `StoreError` where the file is missing or torn, `UserError` where a newer posttrain wrote it.
    """
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise StoreError(f"there is no file {path}") from None
    except ValueError as error:
        raise StoreError(f"{path} is not the JSON that posttrain wrote: {error}") from None
    if not isinstance(content, dict):
        raise StoreError(f"{path} holds no JSON object")
    check_schema(content.pop("schema_version", None), path)
    return content


def check_schema(version: Json, path: Path) -> None:
    """Refuse what this version cannot read. Raises `UserError` for a newer schema, `StoreError` for none."""
    if not isinstance(version, int) or version < 1:
        raise StoreError(f"{path} states no schema version")
    if version > SCHEMA_VERSION:
        raise UserError(
            f"{path} was written by a newer posttrain (schema {version}; this one reads up to {SCHEMA_VERSION}): "
            "upgrade posttrain to read it"
        )


def plain(value: Json) -> Json:
    """The same data as JSON can hold it: null for NaN and the infinities, lists for tuples."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def temporary_name(path: Path) -> Path:
    """Fixed, so that what a kill leaves behind is overwritten by the next write instead of piling up."""
    return path.with_name(f".{path.name}.tmp")


def sync(path: Path) -> None:
    """fsync a file or a folder: after a power cut it is there, and a folder knows its entries."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def storing(path: Path) -> Iterator[None]:
    """Turn the system's refusals into sentences: which file, and how much room there is."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFullError(
                f"the disk is full: {path} could not be written ({_free_mib(path)} free there); what was finished "
                "before is whole"
            ) from error
        raise StoreError(f"{path} could not be written: {error.strerror or error}") from error


def _free_mib(path: Path) -> str:
    folder = next((parent for parent in path.absolute().parents if parent.exists()), Path("/"))
    return f"{shutil.disk_usage(folder).free / MIB:.1f} MiB"
