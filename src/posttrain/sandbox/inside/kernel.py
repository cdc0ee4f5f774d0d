"""System calls that the standard library has no function for."""

import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)
for _name in ("capset", "prctl", "syscall"):
    getattr(libc, _name)  # looked up before any fork, so that no child has to


def check(result: int) -> int:
    """The result of a call; `OSError` where it is refused."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
