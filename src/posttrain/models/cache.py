"""Where finished models lie on this machine. A model folder is renamed into place when whole: it is there or it is not.

The root is the user's cache directory, or what the environment variable POSTTRAIN_CACHE names. It fetches nothing.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock
from platformdirs import user_cache_path

from posttrain.core.errors import ModelError

NEEDED_FILES = ("config.json", "tokenizer.json")
"""Beside the weights; without them a folder is no model."""


def models_root(cache: Path | None = None) -> Path:
    """The folder of finished models under `cache`, else POSTTRAIN_CACHE, else the user's cache directory."""
    root = cache or Path(os.environ.get("POSTTRAIN_CACHE") or user_cache_path("posttrain"))
    return root.expanduser() / "models"


def missing_files(folder: Path) -> list[str]:
    """What a Hugging Face folder lacks to be trained; empty for a whole one."""
    missing = [name for name in NEEDED_FILES if not (folder / name).is_file()]
    if not any(folder.glob("*.safetensors")):
        missing.append("*.safetensors")
    return missing


@contextmanager
def exclusive(target: Path) -> Iterator[None]:
    """Hold `target`'s name against other processes that would make the same model; waits for them.

    Raises `ModelError` where the cache cannot be written.
    """
    lock = FileLock(target.parent / f".{target.name}.lock")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except OSError as error:
        raise ModelError(
            f"the models' folder {target.parent} could not be written: {error.strerror or error}; the environment "
            "variable POSTTRAIN_CACHE names another place for it"
        ) from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def finished_folder(target: Path) -> Iterator[Path]:
    """An empty folder to fill; it becomes `target` when the block ends, and is gone where the block raises.

    What an interrupted maker left behind is removed first. Call it under `exclusive(target)`.
    """
    work = target.parent / f".{target.name}.partial"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        yield work
        _flush(work)
        if target.exists():  # a damaged one: the caller would not be making it otherwise
            shutil.rmtree(target)
        work.rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _flush(folder: Path) -> None:
    """Onto the disk before the rename: a power cut must not leave a finished name with unfinished files."""
    for path in [*folder.iterdir(), folder]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
