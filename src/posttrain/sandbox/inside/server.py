"""The server of a slot: a Python that has its imports behind it and forks a child for each program, one at a time.
Where there is a namespace for processes, it is pid 1 of it.

It reads nothing that a program or its author wrote: a packet is a word and a few numbers, with the descriptors that
the child gets, so no execution leaves anything in the memory that the next one is a copy of. Between two executions
nothing stays but this process: all others are dead, and the box is another. Between two steps of a session its files
stay, and its processes where it asked for that. What fails here ends the server, and with it the slot, for the host
to see.
"""

import _socket
import array
import gc
import importlib
import os
import select
import sys
import time

from posttrain.sandbox.inside.box import Box
from posttrain.sandbox.inside.cells import Cells, Warden
from posttrain.sandbox.inside.interpreter import interpret
from posttrain.sandbox.inside.lockdown import DEVICE, READ, WRITE, Lockdown, hide_memory
from posttrain.sandbox.inside.program import BOX, become
from posttrain.sandbox.inside.warden import Bell, end_all, reap_all, watch_over

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from posttrain.sandbox.job import Server

NUM_DESCRIPTORS = 5
"""Standard input, output and errors, then the job with the inputs, and the answers."""
HELLO = b"hello"
"""The first packet from here, with the Landlock ABI behind it."""
STOP = b"stop"
"""End what runs, and report."""
ONCE, STEP, STEP_AND_KEEP, TRUSTED = b"once", b"step", b"keep", b"trusted"
"""Each comes with descriptors, forks, and is answered by a report, before which stands how many microseconds the last
replacement of the box took. ONCE, with a user, MiB and a number of files behind it, has a box of its own. The others
are a session's: STEP_AND_KEEP leaves processes alive, and TRUSTED is for our own code, which stands in the folder of
the layers and leaves whoever is alive in peace."""
CELL, CELL_AND_KEEP = b"cell", b"cell-keep"
"""The same for the session's interpreter, which is forked where there is none (`cells.py`)."""
OPEN, LAYER, STACK, CLOSE = b"open", b"layer", b"stack", b"close"
"""A session's box: a user, MiB and a number of files; the number of a new layer; the number of the upper one or -1,
then the lower ones. Answered by `DONE`, or by what the kernel said."""
QUIT, SWEEP = b"quit", b"sweep"
"""End a session's interpreter; end all its processes. Answered like those."""
DONE = b"done\n"
_INPUT, _ANSWER = 3, 4
_RULES = (("/", READ), ("/dev", DEVICE), (BOX.rpartition("/")[0], WRITE))
"""`BOX` gets a new file system each time, so what is allowed there is said of the folder that it stands in, which holds
nothing else."""
_MAX_PACKET = 4096


def start(server: "Server") -> None:
    """Does not return: not here, and not in a child."""
    serve(server, Box(), _RULES, network=True)


def serve(server: "Server", box: Box, rules: "Sequence[tuple[str, int]]", *, network: bool) -> None:
    """`rules` and `network` are for the `Lockdown` of programs. Does not return either."""
    hide_memory()
    os.open("/dev/null", os.O_RDONLY)  # whatever is opened or received lies above the numbers of a child's streams
    os.open("/dev/null", os.O_RDONLY)
    sys.path += server["paths"]
    for name in server["preload"]:
        importlib.import_module(name)
    lockdown = Lockdown(server["filter"], rules, network=network)
    control = _socket.socket(fileno=server["control"])
    control.send(HELLO + b" %d" % lockdown.landlock_abi)
    gc.collect()
    gc.freeze()
    gc.disable()
    word, num_others = _forked(control, lockdown, box)
    gc.enable()
    _reseed()
    if word in (CELL, CELL_AND_KEEP):
        interpret(_INPUT)
    become(_INPUT, _ANSWER, box.path, num_others)


def _forked(control: "_socket.socket", lockdown: Lockdown, box: Box) -> "tuple[bytes, int]":
    """Returns in each child, and in the children only, so that none finds our variables on its stack: the word that
    the child is for, and the processes beside it that count against its limit."""
    bell, cells = Bell(), Cells()
    reset_us = 0
    space = _socket.CMSG_SPACE(NUM_DESCRIPTORS * 4)
    while True:
        _wait_for_packet(control, bell)
        packet, ancillary, _, _ = control.recvmsg(_MAX_PACKET, space)
        if not packet:
            os._exit(0)  # the host closed its end, or is gone
        word, *rest = packet.split()
        numbers = [int(number) for number in rest]
        if word == STOP:
            continue  # it crossed our report
        if word in (OPEN, LAYER, STACK, CLOSE, QUIT, SWEEP):
            control.send(_change(box, cells, word, numbers))
            continue
        descriptors = array.array("i", ancillary[0][2])
        if word == ONCE:
            box.fill(*numbers)
        warden = Warden() if word == STEP and cells.alive else None
        if warden and not warden.fork():
            _close(descriptors)
            control.send(b"%d %s" % (reset_us, warden.report()))
            continue
        num_others = box.num_others()
        in_cells = word in (CELL, CELL_AND_KEEP)
        program = cells.take(descriptors) if in_cells else os.fork()
        if program == 0:
            inherited = (0, 1, 2, cells.link) if in_cells else descriptors
            bell.silence()
            if word == TRUSTED:
                os.fchdir(box.layers)
            _confine(box.user, inherited)
            lockdown.apply(alone=word in (ONCE, CELL))
            os.closerange(len(inherited), 1 << 20)
            return word, num_others
        _close(descriptors)
        keep = word in (STEP_AND_KEEP, CELL_AND_KEEP, TRUSTED)
        if in_cells:
            report = cells.watch_over(program, control.fileno(), bell, keep=keep)
        else:
            report = watch_over(program, control.fileno(), bell, box=box.path, kill_all=box.kill_all, keep=keep)
        if warden:
            warden.tell(report)
        control.send(b"%d %s" % (reset_us, report))
        if word == ONCE:
            started = time.perf_counter()
            box.empty()
            reset_us = int((time.perf_counter() - started) * 1e6)


def _wait_for_packet(control: "_socket.socket", bell: Bell) -> None:
    """Reap what a session has kept meanwhile."""
    poll = select.poll()
    poll.register(control.fileno(), select.POLLIN)
    poll.register(bell.read, select.POLLIN)
    while True:
        ready = [fd for fd, _ in poll.poll()]
        if bell.read in ready:
            bell.hush()
            reap_all()
        if control.fileno() in ready:
            return


def _change(box: Box, cells: Cells, word: bytes, numbers: "list[int]") -> bytes:
    try:
        if word == OPEN:
            box.fill(*numbers)
            box.keep_layers()
        elif word == LAYER:
            box.make_layer(numbers[0])
        elif word == STACK:
            box.stack(numbers[0] if numbers[0] >= 0 else None, numbers[1:])
        elif word == QUIT:
            cells.end()
        else:
            end_all()
            cells.end()
            if word == CLOSE:
                box.empty()
    except OSError as error:
        return f"{error.strerror}\n".encode()
    return DONE


def _close(descriptors: "Sequence[int]") -> None:
    for fd in descriptors:
        os.close(fd)


def _confine(user: int, descriptors: "Sequence[int]") -> None:
    os.setsid()
    for number, fd in enumerate(descriptors):
        os.dup2(fd, number)
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)


def _reseed() -> None:
    """The generators that the preloads brought would be the same in every child. `random` seeds itself after a fork."""
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
