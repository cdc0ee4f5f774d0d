"""A fingerprint of weights: what the learner wrote and what the engine samples from must have the same one (law L17).

A fast hash over the raw bytes of every tensor, with its name, element size and shape, in any order of the tensors. It
tells apart weights that differ by accident (a publish that did not arrive, two tensors in each other's place); it is
no defence against somebody who builds a collision on purpose.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

_CHUNK_WORDS = 1 << 15  # 256 KiB: a chunk and its two temporaries stay in a core's cache
_CHUNK_FACTOR = 0x9E3779B97F4A7C15
_WORD_MASK = (1 << 64) - 1


def fingerprint(tensors: Iterable[tuple[str, npt.NDArray[Any]]]) -> str:
    """128 bits, hexadecimal, of (name, array) pairs in any order.

    An array's bytes, shape and element size count, its type does not: a bfloat16 tensor is given as the uint16 view
    of its bits, so that both sides hash the same whatever library holds it. Names must differ.
    """
    lines = {}
    for name, array in tensors:
        assert name not in lines, f"tensor {name} twice in one fingerprint"
        lines[name] = f"{name}\0{array.itemsize}\0{array.shape}\0{_hash_bytes(array):016x}"
    return hashlib.blake2b("\n".join(lines[name] for name in sorted(lines)).encode(), digest_size=16).hexdigest()


def folder_fingerprint(folder: Path) -> str:
    """Of every tensor in a folder's safetensors files, as they lie on the disk."""
    return fingerprint(pair for path in sorted(folder.glob("*.safetensors")) for pair in _raw_tensors(path))


def splitmix64(state: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The output function of SplitMix64 (Steele, Lea and Flood 2014): a bijection whose output looks random."""
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


def _hash_bytes(array: npt.NDArray[Any]) -> int:
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    num_words = data.size // 8
    words = data[: num_words * 8].view(np.uint64)
    factors = _factors()
    mixed = np.empty(_CHUNK_WORDS, dtype=np.uint64)
    total = 0
    for start in range(0, num_words, _CHUNK_WORDS):
        chunk = words[start : start + _CHUNK_WORDS]
        part = mixed[: chunk.size]
        # A word's high bits must reach its low ones first: a sign bit alone would pass through the product unmixed,
        # and two of them would cancel in the sum.
        np.right_shift(chunk, np.uint64(32), out=part)
        np.bitwise_xor(part, chunk, out=part)
        np.multiply(part, factors[: chunk.size], out=part)
        total = (total * _CHUNK_FACTOR + int(part.sum())) & _WORD_MASK
    tail = int.from_bytes(data[num_words * 8 :].tobytes(), "little")
    return (total * _CHUNK_FACTOR + tail) & _WORD_MASK


@cache
def _factors() -> npt.NDArray[np.uint64]:
    return splitmix64(np.arange(1, _CHUNK_WORDS + 1, dtype=np.uint64)) | np.uint64(1)


def _raw_tensors(path: Path) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """The safetensors format: 8 bytes of header length, a JSON header, then the tensors' bytes."""
    data = np.memmap(path, dtype=np.uint8, mode="r")
    header_end = 8 + int.from_bytes(data[:8].tobytes(), "little")
    for name, entry in json.loads(data[8:header_end].tobytes()).items():
        if name == "__metadata__":
            continue
        start, end = entry["data_offsets"]
        bits = re.search(r"\d+", entry["dtype"])  # BF16, F32, I64, F8_E4M3 …; BOOL is one byte
        item = np.dtype(f"u{int(bits[0]) // 8 if bits else 1}")
        yield name, data[header_end + start : header_end + end].view(item).reshape(entry["shape"])
