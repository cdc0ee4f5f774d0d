"""System calls that the standard library has no function for."""

import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)


def check(result: int) -> int:
    """The result of a call; `OSError` where it is refused."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
