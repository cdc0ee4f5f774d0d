"""How many processes and threads of our user the kernel counts, found by trying, since RLIMIT_NPROC counts them all.

/proc would not do: the kernel also counts those of the same user in other containers of the machine.
"""

import os
import resource

_MOST = 1 << 22
"""The kernel has no more process numbers."""


class Headcount:
    def __init__(self) -> None:
        self._last = 1

    def take(self) -> int:
        """Now. Costs one fork where it is what it was the last time. Raises `OSError` where no limit lets us fork."""
        low, high = self._last - 1, self._last
        step = 1
        while not _can_fork(high):
            if high >= _MOST:
                raise OSError("the server cannot fork, whatever its own limit is")
            low, high, step = high, min(high + step, _MOST), step * 2
        step = 1
        while low > 0 and _can_fork(low):
            low, high, step = max(0, low - step), low, step * 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if _can_fork(middle) else (middle, high)
        self._last = high
        return high - 1


def _can_fork(limit: int) -> bool:
    """Up to `limit` processes, the new one included."""
    before = resource.getrlimit(resource.RLIMIT_NPROC)
    resource.setrlimit(resource.RLIMIT_NPROC, (min(limit, before[1]) if before[1] >= 0 else limit, before[1]))
    try:
        child = os.fork()
    except BlockingIOError:
        return False
    finally:
        resource.setrlimit(resource.RLIMIT_NPROC, before)
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return True
