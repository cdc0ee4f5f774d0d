"""Pid 1 of a slot: a Python that has its imports behind it and forks a child for each execution, one at a time.

It reads nothing that a program or its author wrote: an order is a few numbers and the descriptors that the child
gets, so no execution leaves anything in the memory that the next one is a copy of. Between two executions nothing
stays but this process: all others are dead, and the box is another tmpfs. What fails here ends the server, and with
it the slot, for the host to see.
"""

import _socket
import array
import gc
import importlib
import os
import struct
import sys
import time

from posttrain.sandbox.inside.lockdown import Lockdown, hide_memory, mount_scratch, unmount_scratch
from posttrain.sandbox.inside.program import become
from posttrain.sandbox.inside.warden import Bell, watch_over

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from posttrain.sandbox.job import Server

ORDER = struct.Struct("=III")
"""The user to become, MiB of disk, number of files."""
NUM_DESCRIPTORS = 5
"""Standard input, output and errors, then the job with the inputs, and the answers."""
HELLO, STOP = b"hello", b"stop"
"""The first packet from here, with the Landlock ABI behind it; and what the host may send beside orders."""
_INPUT, _ANSWER = 3, 4
_MAX_PACKET = 256


def start(server: "Server") -> None:
    """Does not return: not here, and not in a child."""
    hide_memory()
    sys.path += server["paths"]
    for name in server["preload"]:
        importlib.import_module(name)
    lockdown = Lockdown(server["filter"])
    control = _socket.socket(fileno=server["control"])
    control.send(HELLO + b" %d" % lockdown.landlock_abi)
    groups = server["cgroups"]
    os.open("/dev/null", os.O_RDONLY)  # whatever is received lies above the numbers that a child puts it to
    os.open("/dev/null", os.O_RDONLY)
    gc.collect()
    gc.freeze()
    gc.disable()
    _forked(control, lockdown, groups)
    gc.enable()
    _reseed()
    become(_INPUT, _ANSWER)


def _forked(control: "_socket.socket", lockdown: Lockdown, groups: "Sequence[int]") -> None:
    """Returns in each child, and in the children only, so that none finds our variables on its stack."""
    bell = Bell()
    space = _socket.CMSG_SPACE(NUM_DESCRIPTORS * 4)
    while True:
        packet, ancillary, _, _ = control.recvmsg(_MAX_PACKET, space)
        if not packet:
            os._exit(0)  # the host closed its end, or is gone
        if packet == STOP:
            continue  # it crossed our report
        user, disk_mib, num_files = ORDER.unpack(packet)
        descriptors = array.array("i", ancillary[0][2])
        mount_scratch(disk_mib, num_files, user)
        program = os.fork()
        if program == 0:
            bell.silence()
            _confine(user, descriptors, groups, lockdown)
            return
        for fd in descriptors:
            os.close(fd)
        control.send(watch_over(program, control.fileno(), bell))
        started = time.perf_counter()
        unmount_scratch()
        reset_s = time.perf_counter() - started
        control.send(b"%d" % int(reset_s * 1e6))


def _confine(user: int, descriptors: "Sequence[int]", groups: "Sequence[int]", lockdown: Lockdown) -> None:
    for fd in groups:
        os.write(fd, b"0")
    os.setsid()
    for number, fd in enumerate(descriptors):
        os.dup2(fd, number)
    os.closerange(NUM_DESCRIPTORS, 1 << 20)
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    lockdown.apply()


def _reseed() -> None:
    """The generators that the preloads brought would be the same in every child."""
    if "random" in sys.modules:
        sys.modules["random"].seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
