"""To leave one process alone in the server's namespace, for certain, though `kill(-1)` spares none, and without /proc.

Numbers of processes are given out one after another, so a new process of our own tells by its number whether there
have been others since the last one, and which numbers they can have.
"""

import _signal  # type: ignore[import-not-found]  # `signal` builds enums, which costs as much as starting Python
import os
import select

_ROUNDS = 20


class Census:
    """Made when `spared` is the newest process and has no others beside it."""

    def __init__(self, spared: int) -> None:
        self._spared = spared
        self._known = spared
        """All others with numbers up to this one are dead."""

    def end_others(self, pidfd: int) -> bool:
        """Stop `spared`, whose descriptor is `pidfd`, and end everybody else but ourselves. False where that cannot be
        made sure: the numbers begin again, others come faster than they go, or they leave no room for one of ours."""
        for _ in range(_ROUNDS):
            _signal.pidfd_send_signal(pidfd, _signal.SIGSTOP)  # who is alone is not continued by anybody
            try:
                newest = _number_of_a_process()
            except BlockingIOError:
                return False
            if newest <= self._known:
                return False
            others = range(self._known + 1, newest)
            self._known = newest
            if not others:
                return True
            for number in others:
                _end(number)
        return False


def _number_of_a_process() -> int:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return pid


def _end(number: int) -> None:
    """Returns when it is dead, though perhaps not waited for."""
    try:
        pidfd = os.pidfd_open(number)
    except OSError:  # there is none, or it is a thread
        return
    try:
        _signal.pidfd_send_signal(pidfd, _signal.SIGKILL)
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        poll.poll()
    except ProcessLookupError:
        pass
    finally:
        os.close(pidfd)
