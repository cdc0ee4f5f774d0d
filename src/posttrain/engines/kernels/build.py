"""Builds the kernels once for this machine, torch and compiler, and keeps them in the user's cache.

Where that is not possible there is a reason, as a sentence, and the engine does without. It never fails a run.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import torch
from filelock import FileLock
from platformdirs import user_cache_path

from posttrain.core.processor import processor_flags

_LOG = logging.getLogger(__name__)
_SOURCE = Path(__file__).with_name("decode.cpp")
_HEADER = Path(__file__).with_name("vectors.h")
_FLAGS = (
    *("-O3", "-march=native", "-mprefer-vector-width=512", "-fno-math-errno", "-fno-trapping-math"),
    *("-fopenmp", "-shared", "-fPIC", "-std=c++20"),
)
_COMPILE_TIMEOUT_S = 600


class KernelsUnavailableError(Exception):
    """Why there are no kernels; never leaves this package's callers."""


def prepare_kernels() -> str:
    """Build the kernels now, so that the first engine need not; returns a sentence about what came of it."""
    try:
        library, built = _library_path()
        _load(library)
    except KernelsUnavailableError as error:
        return f"The embedded engine runs without compiled kernels: {error}."
    return f"The embedded engine's kernels {'were built' if built else 'are ready'}: {library}."


@cache
def load_kernels() -> ctypes.CDLL | None:
    """The library, built if need be; None, with one sentence in the log, where this machine cannot have it."""
    try:
        return _load(_library_path()[0])
    except KernelsUnavailableError as error:
        _LOG.warning("the embedded engine runs without compiled kernels, at about half the speed: %s", error)
        return None


def _library_path() -> tuple[Path, bool]:
    """The built library, and whether it was built just now."""
    compiler = os.environ.get("CXX") or shutil.which("g++")
    if compiler is None:
        raise KernelsUnavailableError("there is no C++ compiler (g++, or what CXX names)")
    folder = _cache_root() / _cache_key(compiler)
    library = folder / "decode.so"
    if library.exists():
        return library, False
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "build.lock"):
            if not library.exists():
                _compile(compiler, library)
    except OSError as error:
        raise KernelsUnavailableError(f"the cache folder {folder} cannot be written: {error}") from None
    return library, True


def _cache_root() -> Path:
    root = Path(os.environ.get("POSTTRAIN_CACHE") or user_cache_path("posttrain"))
    return root.expanduser() / "kernels"


def _cache_key(compiler: str) -> str:
    """Whatever the library depends on; `-march=native` depends on the processor's flags."""
    version = _run([compiler, "-dumpfullversion"]).strip()
    parts = [
        _SOURCE.read_text(),
        _HEADER.read_text(),
        torch.__version__,
        compiler,
        version,
        *_FLAGS,
        " ".join(sorted(processor_flags())) or torch.backends.cpu.get_cpu_capability(),
    ]
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=12).hexdigest()


def _compile(compiler: str, library: Path) -> None:
    root = Path(torch.__file__).parent
    with tempfile.TemporaryDirectory(dir=library.parent) as work:
        output = Path(work) / library.name
        paths = [f"-I{root / 'include'}", str(_SOURCE), "-o", str(output), f"-L{root / 'lib'}", "-ltorch_cpu", "-lc10"]
        _run([compiler, *_FLAGS, *paths])
        output.replace(library)  # whole or absent: another process may be looking


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KernelsUnavailableError(f"{command[0]} did not run: {error}") from None
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise KernelsUnavailableError(f"{command[0]} failed with exit code {done.returncode}: {lines[0]}")
    return done.stdout


def _load(library: Path) -> ctypes.CDLL:
    try:
        kernels = ctypes.CDLL(str(library))
    except OSError as error:
        raise KernelsUnavailableError(f"{library} cannot be loaded: {error}") from None
    if kernels.probe() != 0:
        raise KernelsUnavailableError("this processor has no bfloat16 products (AVX-512 BF16 or AMX)")
    return kernels
