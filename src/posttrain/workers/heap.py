"""Giving free memory back to the system, where the allocator settings of `workers/spec.py` would keep all of it.

Those settings keep big temporaries in the heap, which is fast; but tensors of ever new sizes leave holes there that
are never the right size again, and a long run's processes would grow without bound. It frees nothing that is in use.
"""

from __future__ import annotations

import ctypes

KEPT_FREE_BYTES = 1 << 30
"""Free memory that stays mapped: about what one call takes and returns, so that most calls fault nothing in."""


class _MallocInfo(ctypes.Structure):
    """glibc's `struct mallinfo2`, in its order."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


def free_bytes() -> int:
    """Bytes that the heap holds and nobody uses, mapped or not; 0 where the C library does not say."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):  # older than glibc 2.33, or another C library
        return 0
    libc.mallinfo2.restype = _MallocInfo
    return int(libc.mallinfo2().fordblks)


def give_back(kept_free_bytes: int = KEPT_FREE_BYTES) -> bool:
    """Unmap the heap's free pages where there are more than `kept_free_bytes` of them; whether it did."""
    if free_bytes() <= kept_free_bytes:
        return False
    return bool(ctypes.CDLL(None).malloc_trim(0))
