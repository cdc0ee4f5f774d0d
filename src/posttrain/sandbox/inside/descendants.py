"""How all descendants of a server without a pid namespace are ended: it is their subreaper, so whom they leave becomes
its child. Nobody else is touched, though others have the same user.

Nothing is reaped until all are dead, and that is why it ends: the dead count against the limit of processes until they
are reaped, so programs that fork faster than they are found run out of it.
"""

# Importing pathlib would cost as much as all the rest:
# ruff: noqa: PTH115, PTH123

import _signal  # type: ignore[import-not-found]  # `signal` builds enums, which costs as much as starting Python
import os

from posttrain.sandbox.inside.kernel import check, libc

_PR_SET_CHILD_SUBREAPER = 36
_CHILDREN = "/proc/thread-self/children"


def adopt_orphans() -> None:
    """This process, which has one thread, becomes a subreaper. Raises `RuntimeError` where /proc does not show its
    children by the numbers that signals go to."""
    if os.readlink("/proc/self") != str(os.getpid()) or not os.access(_CHILDREN, os.R_OK):
        raise RuntimeError("/proc does not show a process its own children: mount the /proc of this pid namespace")
    check(libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))


def kill_descendants() -> bool:
    """End them all; False when there was none, dead or alive. They are left to be reaped."""
    dead: set[int] = set()
    while True:
        children = _children()
        # Whoever lives has a chain of living parents up to a child of ours, since orphans become ours at once.
        if children <= dead:
            return bool(children)
        for pid in children - dead:
            os.kill(pid, _signal.SIGKILL)  # a child keeps its number until we reap it
        for pid in children - dead:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            dead.add(pid)


def _children() -> set[int]:
    with open(_CHILDREN) as file:
        return set(map(int, file.read().split()))
