"""Free memory goes back to the system, and only beyond what is to be kept."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from posttrain.workers.heap import free_bytes, give_back
from posttrain.workers.spec import WorkerSpec

LIBC = ctypes.CDLL(None)
pytestmark = pytest.mark.skipif(not hasattr(LIBC, "mallinfo2"), reason="this C library does not say what is free")

# Holes: every second block is freed, and the last one keeps the heap's top from shrinking by itself.
HOLES = """
import numpy as np
from posttrain.workers.heap import free_bytes, give_back

def resident_mib():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 // 2**20

blocks = [np.ones(2**20, np.uint8) for _ in range(200)]
full = resident_mib()
del blocks[::2]
held = resident_mib()
kept = give_back(2**30)
print(full, held, free_bytes() // 2**20, kept, give_back(2**20), resident_mib())
"""


def test_holes_in_the_heap_are_given_back_under_the_allocator_settings_of_a_worker(tmp_path: Path) -> None:
    environment = WorkerSpec("w", "a:b", tmp_path / "log").child_environment
    output = subprocess.run(
        [sys.executable, "-c", HOLES], env=environment, capture_output=True, text=True, check=True
    ).stdout.split()
    full, held, free, after = (int(output[place]) for place in (0, 1, 2, 5))
    assert held > full - 20, "with these settings a worker keeps what it frees"
    assert free >= 95
    assert output[3] == "False", "less than 1 GiB is free: it stays mapped"
    assert output[4] == "True"
    assert after < held - 80


def test_a_process_that_has_little_to_give_keeps_it() -> None:
    assert free_bytes() >= 0
    assert give_back(kept_free_bytes=1 << 40) is False
