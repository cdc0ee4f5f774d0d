"""Pid 1 of a sandbox that was built for one execution: it becomes another user, forks the program, and reports."""

import os

from posttrain.sandbox.inside.program import become
from posttrain.sandbox.inside.warden import Bell, watch_over

TYPE_CHECKING = False  # importing typing would cost as much as all the rest
if TYPE_CHECKING:
    from posttrain.sandbox.job import Single


def start(single: "Single") -> None:
    """Does not return. The host closes its end of `control` when it wants us to stop."""
    bell = Bell()
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(single["uid"])
        os.setuid(single["uid"])
    program = os.fork()
    if program == 0:
        bell.silence()
        os.close(single["control"])
        os.close(single["report"])
        become(single["input"], single["answer"])
    os.close(single["input"])
    os.close(single["answer"])
    os.write(single["report"], watch_over(program, single["control"], bell))
    os._exit(0)
