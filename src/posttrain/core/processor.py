"""What this machine's processor is good at, as Linux says; nothing is measured, and torch stays out of it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal

_BFLOAT16 = {"avx512_bf16", "amx_bf16", "bf16"}
"""x86's and Arm's names for products of bfloat16 in hardware."""


@cache
def processor_flags() -> frozenset[str]:
    """Instruction sets in the kernel's words; empty where there is no /proc/cpuinfo."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return frozenset()
    line = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return frozenset(line.partition(":")[2].split())


def faster_dtype() -> Literal["bfloat16", "float32"]:
    """The type that matrix products are faster in. Without such instructions bfloat16 is emulated, several times slower
    than float32 (`docs/log.md`)."""
    return "bfloat16" if processor_flags() & _BFLOAT16 else "float32"
