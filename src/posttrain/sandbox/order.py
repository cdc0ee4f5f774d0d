"""What is to be run, checked before anything starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from posttrain.core.errors import UserError
from posttrain.core.sandboxing import SandboxLimits
from posttrain.core.types import Json

MIB = 1 << 20
_PAGE_BYTES = 4096
_FILES_PER_MIB, _FILES_MORE = 256, 64
_MAX_PATH, _MAX_PATH_PART = 1000, 60
"""Characters, of at most 4 bytes each: below the kernel's 4096 and 255."""


@dataclass(frozen=True)
class Order:
    """`argv`, or `function` of `source` where `argv` is empty."""

    limits: SandboxLimits
    argv: tuple[str, ...] = ()
    source: str = ""
    function: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    stdin: str = ""
    verb: tuple[Any, ...] = ()
    """What a session has our own code do (`inside/files.py`, `inside/testing.py`), instead of a program."""

    @property
    def fits(self) -> bool:
        """Whether the files find room on the disk."""
        return _laid_bytes(self.files) <= self.limits.disk_mib * MIB


def call_order(source: str, function: str, inputs: Sequence[Sequence[Json]], limits: SandboxLimits) -> Order:
    """Raises `UserError` for no inputs (law L26)."""
    if not inputs:
        raise UserError(f"a sandboxed call of {function!r} has no inputs: it would say nothing about the program")
    return Order(limits, source=source, function=function)


def run_order(argv: Sequence[str], files: Mapping[str, str] | None, stdin: str, limits: SandboxLimits) -> Order:
    """Raises `UserError` for no program and for a path that leaves the working directory (attack 25)."""
    if not argv:
        raise UserError("a sandboxed run needs a program: argv is empty")
    files = {str(PurePosixPath(name)): content for name, content in (files or {}).items()}
    _check_paths(files)
    return Order(limits, argv=tuple(argv), files=files, stdin=stdin)


def check_path(name: str) -> None:
    """Raises `UserError` for a path that leaves the working directory, or that no file can have."""
    path = PurePosixPath(name)
    fits = len(name) <= _MAX_PATH and all(len(part) <= _MAX_PATH_PART for part in path.parts)
    if not path.parts or path.is_absolute() or ".." in path.parts or "\0" in name or not fits:
        raise UserError(f"a file for the sandbox cannot be called {name[:200]!r}: the path must stay inside")


def _check_paths(files: Mapping[str, str]) -> None:
    for name, content in files.items():
        check_path(name)
        path = PurePosixPath(name)
        if any(str(parent) in files for parent in path.parents):
            raise UserError(f"a file for the sandbox cannot be called {name[:200]!r}: a part of it is a file itself")
        try:
            (name + content).encode()
        except UnicodeEncodeError:
            raise UserError(f"the file {name[:200]!r} for the sandbox is no valid Unicode") from None


def _laid_bytes(files: Mapping[str, str]) -> int:
    """Upper bound of what files take in a tmpfs: whole pages, and one for each folder."""
    pages = sum(1 + len(PurePosixPath(name).parts) + len(text.encode()) // _PAGE_BYTES for name, text in files.items())
    return pages * _PAGE_BYTES


def max_files(disk_mib: int) -> int:
    """Inodes of a disk of that size."""
    return disk_mib * _FILES_PER_MIB + _FILES_MORE
