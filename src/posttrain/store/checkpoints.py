"""Checkpoints, each whole or absent (law L22): a folder that is filled, made durable, and then marked.

    000003-rl-000040/      serial number (the order), then a label for people
        …                  whatever the caller fills in
        COMPLETE.json      written last: the caller's state, and every file with its size

A folder without its marker, or whose files are not as the marker says, is no checkpoint. Nothing here knows what a
checkpoint holds.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from posttrain.core.errors import StoreError
from posttrain.core.types import Json
from posttrain.store.files import read_json, storing, sync, write_json

MARKER = "COMPLETE.json"
_NAME = re.compile(r"(\d{6,})-(.+)")


@dataclass(frozen=True)
class Checkpoint:
    """A whole one."""

    path: Path
    state: Json
    """What its writer gave to `commit`."""


class Checkpoints:
    """A folder of checkpoints, written by one process, one at a time, under the run's lock.

    `begin` and `commit` block on the disk: from an event loop, call them in a thread.
    """

    def __init__(self, folder: Path, keep: int, worth_keeping: Callable[[Json], bool] | None = None) -> None:
        """The newest `keep` stay, and the newest whose state is `worth_keeping`."""
        assert keep >= 1, keep
        self._folder = folder
        self._keep = keep
        self._worth_keeping = worth_keeping

    def begin(self, label: str) -> Path:
        """A new empty folder to fill; what an earlier, unfinished one left behind is removed first."""
        self._remove_unmarked()
        path = self._folder / f"{self._next_serial():06d}-{label}"
        assert _NAME.fullmatch(path.name), f"a label that cannot be a file's name: {label!r}"
        with storing(path):
            path.mkdir(parents=True)
        return path

    def commit(self, path: Path, state: Json) -> Checkpoint:
        """Make `path` durable, mark it whole, then remove the oldest beyond `keep`."""
        with storing(path):
            files = sorted(entry for entry in path.rglob("*") if entry.is_file())
            folders = sorted((entry for entry in path.rglob("*") if entry.is_dir()), reverse=True)
            for entry in (*files, *folders, path):
                sync(entry)
            sizes = {str(file.relative_to(path)): file.stat().st_size for file in files}
            sync(self._folder)
        write_json(path / MARKER, {"state": state, "files": sizes})
        self._prune()
        return Checkpoint(path, state)

    def latest(self) -> Checkpoint | None:
        """The last whole one. Raises `UserError` where a newer posttrain wrote it."""
        whole = self._whole()
        return _checkpoint(whole[-1]) if whole else None

    def whole(self) -> list[Checkpoint]:
        """All of them, the oldest first. Raises `UserError` where a newer posttrain wrote one."""
        return [_checkpoint(path) for path in self._whole()]

    def _folders(self) -> list[Path]:
        found = [(int(match[1]), path) for path in self._folder.glob("*-*") if (match := _NAME.fullmatch(path.name))]
        return [path for _, path in sorted(found)]

    def _whole(self) -> list[Path]:
        return [path for path in self._folders() if _is_whole(path)]

    def _next_serial(self) -> int:
        folders = self._folders()
        return int(folders[-1].name.partition("-")[0]) + 1 if folders else 0

    def remove_after(self, checkpoint: Checkpoint) -> None:
        """Remove the newer ones: what they hold is not to be gone on from."""
        for path in self._whole():
            if path.name > checkpoint.path.name:
                _remove(path)

    def _prune(self) -> None:
        whole = self.whole()
        worth = [found.path for found in whole if self._worth_keeping and self._worth_keeping(found.state)][-1:]
        for checkpoint in whole[: -self._keep]:
            if checkpoint.path not in worth:
                _remove(checkpoint.path)

    def _remove_unmarked(self) -> None:
        for path in self._folders():
            if not (path / MARKER).exists():
                with storing(path):
                    shutil.rmtree(path)


def _remove(path: Path) -> None:
    with storing(path):
        (path / MARKER).unlink()  # first: a half-removed folder must not look whole
        sync(path)
        shutil.rmtree(path)


def _checkpoint(path: Path) -> Checkpoint:
    return Checkpoint(path, read_json(path / MARKER)["state"])


def _is_whole(path: Path) -> bool:
    try:
        files = read_json(path / MARKER)["files"]
        return all((path / name).stat().st_size == size for name, size in files.items())
    except (StoreError, KeyError, OSError):
        return False
