"""The system calls that a sandboxed program gets: a classic-BPF filter, assembled by hand from a list of names.

What is not allowed by name does not exist (ENOSYS), whatever a later kernel adds; libraries then fall back. Calls that
no honest program makes end the process (SIGSYS, which becomes `POLICY_DENIED`). A few are decided by their
arguments, among them all that act on a process by its number: pid 1 of a sandbox is ours and may have the same
user, so a program may act on itself alone (signals apart, which the kernel keeps from a pid 1). It stands behind
namespaces and limits and is no boundary of its own. Other machines than x86_64 and aarch64 have no filter and hence
no sandbox.

The filter searches the number by halves, and looks at no argument before it has found it. So the kernel (5.11 and
later) sees at the start which numbers are always allowed, and never runs the filter for them.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby

from posttrain.sandbox.system_calls import ALLOWED, CHECKED, KILLED, REFUSED, numbers

ALLOW = 0x7FFF0000
KILL = 0x80000000
_ERRNO = 0x00050000
_MISSING, _REFUSE, _NO_FAMILY = (_ERRNO | number for number in (errno.ENOSYS, errno.EPERM, errno.EAFNOSUPPORT))

_LOAD_WORD = 0x20
_JUMP_EQUAL = 0x15
_JUMP_AT_LEAST = 0x35
_JUMP_ANY_BIT = 0x45
_RETURN = 0x06

_ARCH_OFFSET, _NUMBER_OFFSET, _ARGUMENTS_OFFSET = 4, 0, 16
_NAMESPACE_FLAGS = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET."""
_TERMINAL_INJECTION = (0x5412, 0x541C)
"""TIOCSTI, TIOCLINUX."""
_SOCKET_FAMILIES = (1, 2, 10)
"""UNIX, INET, INET6; in particular not VSOCK, which reaches the host of a virtual machine."""
_SCHEDULE_TOGETHER = 62
"""PR_SCHED_CORE, which takes a pid."""
_PRIORITY_OF_PROCESS, _IO_PRIORITY_OF_PROCESS = 0, 1
"""PRIO_PROCESS, IOPRIO_WHO_PROCESS: the other kinds are groups and users, to which pid 1 may belong."""
_SELF = 0


@dataclass(frozen=True)
class Machine:
    """Numbers by name."""

    audit_arch: int
    allowed: Mapping[str, int]
    killed: Mapping[str, int]
    refused: Mapping[str, int]
    checked: Mapping[str, int]


MACHINES = {
    name: Machine(audit_arch, *(numbers(table, name) for table in (ALLOWED, KILLED, REFUSED, CHECKED)))
    for name, audit_arch in (("x86_64", 0xC000003E), ("aarch64", 0xC00000B7))
}


def filter_program(machine: Machine) -> bytes:
    """The filter as bwrap's `--seccomp` wants it: an array of `struct sock_filter`."""
    program = [
        _load(_ARCH_OFFSET),
        _jump(_JUMP_EQUAL, machine.audit_arch, 1, 0),
        _return(KILL),
        _load(_NUMBER_OFFSET),
        *_search(_runs(machine)),
    ]
    return b"".join(program)


def _runs(machine: Machine) -> list[tuple[int, list[bytes]]]:
    """What to do, by the first of the numbers in a row that have it in common; the last run has no end, and takes in
    x32's numbers."""
    checks = _checks()
    bodies = {number: checks[name] for name, number in machine.checked.items()}
    for known, action in ((machine.allowed, ALLOW), (machine.killed, KILL), (machine.refused, _REFUSE)):
        bodies |= {number: [_return(action)] for number in known.values()}
    by_number = [(number, bodies.get(number, [_return(_MISSING)])) for number in range(max(bodies) + 2)]
    return [next(run) for _, run in groupby(by_number, key=lambda entry: entry[1])]


def _search(runs: list[tuple[int, list[bytes]]]) -> list[bytes]:
    if len(runs) == 1:
        return runs[0][1]
    middle = len(runs) // 2
    below, above = _search(runs[:middle]), _search(runs[middle:])
    return [_jump(_JUMP_AT_LEAST, runs[middle][0], len(below), 0), *below, *above]


def _checks() -> dict[str, list[bytes]]:
    itself = _decide(0, _JUMP_EQUAL, (_SELF,), ALLOW, _REFUSE)
    return {
        "clone": _decide(0, _JUMP_ANY_BIT, (_NAMESPACE_FLAGS,), _REFUSE, ALLOW),
        "ioctl": _decide(1, _JUMP_EQUAL, _TERMINAL_INJECTION, _REFUSE, ALLOW),
        "prctl": _decide(0, _JUMP_EQUAL, (_SCHEDULE_TOGETHER,), _REFUSE, ALLOW),
        "socket": _decide(0, _JUMP_EQUAL, _SOCKET_FAMILIES, ALLOW, _NO_FAMILY),
        "prlimit64": itself,
        "sched_setaffinity": itself,
        "sched_setattr": itself,
        "sched_setparam": itself,
        "sched_setscheduler": itself,
        "migrate_pages": itself,
        "move_pages": itself,
        "setpriority": _itself_as(_PRIORITY_OF_PROCESS),
        "ioprio_set": _itself_as(_IO_PRIORITY_OF_PROCESS),
    }


def _decide(argument: int, test: int, values: tuple[int, ...], then: int, otherwise: int) -> list[bytes]:
    """By the low 32 bits of one argument, which are all that the kernel reads of those we ask about."""
    tests = [part for value in values for part in (_jump(test, value, 0, 1), _return(then))]
    return [_load(_ARGUMENTS_OFFSET + 8 * argument), *tests, _return(otherwise)]


def _itself_as(kind: int) -> list[bytes]:
    """For calls whose first argument says what the second one is the number of."""
    return [
        _load(_ARGUMENTS_OFFSET),
        _jump(_JUMP_EQUAL, kind, 1, 0),
        _return(_REFUSE),
        *_decide(1, _JUMP_EQUAL, (_SELF,), ALLOW, _REFUSE),
    ]


def _load(offset: int) -> bytes:
    return struct.pack("=HBBI", _LOAD_WORD, 0, 0, offset)


def _jump(test: int, value: int, if_true: int, if_false: int) -> bytes:
    """Counts instructions to skip; more than the 255 that fit are a `struct.error`."""
    return struct.pack("=HBBI", test, if_true, if_false, value)


def _return(action: int) -> bytes:
    return struct.pack("=HBBI", _RETURN, 0, 0, action)
