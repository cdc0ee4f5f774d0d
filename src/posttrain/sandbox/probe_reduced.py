"""Whether this machine gives what `reduced` isolation promises, found by doing, as `probe.py` does for the full one."""

from __future__ import annotations

import functools
import tempfile

from posttrain.sandbox.probe import ATTEMPTS, SlotIsolation, Trial, try_slot
from posttrain.sandbox.reduced import find_reduced_host
from posttrain.sandbox.status import SCOPES_ABI

_LOOK = """
def look(num_processes, port, folder, has_scopes):
    open("own", "w").close()
    return {
        "the program is not root": os.getuid() != 0 and refused(os.setuid, 0),
        "files of the host cannot be read": all(refused(open, path) for path in ("/etc/passwd", "/proc/self/status"))
            and all(refused(os.listdir, path) for path in ("/", folder, os.path.dirname(os.environ["TMPDIR"]) + "/..")),
        "files of the host cannot be written": refused(open, folder + "/posttrain-look", "w")
            and refused(os.link, "/usr/bin/env", "linked"),
        "modes and times of files cannot be changed": refused(os.chmod, "own", 0) and refused(os.utime, "own"),
        "there is no network": unreachable(port),
        "there are no sockets that have names": refused(socket.socket, socket.AF_UNIX),
        "other processes cannot be signalled": not has_scopes or refused(os.kill, os.getppid(), 0),
        "processes are limited": 1 < processes() < 64,
        "one file is limited": disk(),
        "system calls are filtered": forbidden_call() == -signal.SIGSYS,
    }
"""


@functools.cache
def reduced_isolation() -> SlotIsolation:
    """Blocks for about 0.2 s the first time. Raises `IsolationUnavailableError`."""
    host = find_reduced_host()

    def trial(landlock_abi: int) -> Trial:
        arguments = [tempfile.gettempdir(), landlock_abi >= SCOPES_ABI]
        return Trial("isolation 'reduced'", host.tier, ATTEMPTS + _LOOK, arguments)

    return try_slot(host, trial)
