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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate, groupby

from posttrain.sandbox.system_calls import ALLOWED, CHECKED, KILLED, OF_THE_HOST, REFUSED, numbers

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
_UNIX = 1
_SENDS_ANYWHERE = 2
"""A bit that SOCK_DGRAM and SOCK_RAW have, and neither SOCK_STREAM nor SOCK_SEQPACKET."""
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


def on_the_host(machine: Machine) -> Machine:
    """For programs that share the file system and the network with the host. No socket is left to them but pairs that
    are connected for good: any other could reach whoever listens on a path, which Landlock does not judge either."""
    passed = {**machine.allowed, **machine.checked}
    checked = {name: passed[name] for name in (*machine.checked, "socketpair") if name not in OF_THE_HOST}
    refused = {name: number for name, number in passed.items() if name in OF_THE_HOST}
    allowed = {name: number for name, number in machine.allowed.items() if name not in checked and name not in refused}
    return replace(machine, allowed=allowed, refused={**machine.refused, **refused}, checked=checked)


@dataclass(frozen=True)
class _Test:
    """A question about a word of `struct seccomp_data`, and what follows: another one, or the end."""

    code: int
    value: int
    yes: _Test | int
    no: _Test | int
    load: int | None = None
    """The word's offset; without, it is the one that was loaded last."""

    @property
    def num_instructions(self) -> int:
        return 1 if self.load is None else 2


def filter_program(machine: Machine) -> bytes:
    """The filter as bwrap's `--seccomp` wants it: an array of `struct sock_filter`."""
    search = _search(_runs(machine))
    assert isinstance(search, _Test)
    known = replace(search, load=_NUMBER_OFFSET)
    return _assembled(_Test(_JUMP_EQUAL, machine.audit_arch, known, KILL, load=_ARCH_OFFSET))


def _assembled(first: _Test) -> bytes:
    """Each test and each end once, behind all that lead to it, since jumps go forward alone: the kernel checks,
    translates and compiles the filter anew for every program, which costs more the longer it is."""
    tests = list(dict.fromkeys(_after_what_follows(first)))[::-1]
    ends = sorted({end for test in tests for end in (test.yes, test.no) if isinstance(end, int)})
    sizes = [test.num_instructions for test in tests] + [1] * len(ends)
    places = dict(zip([*tests, *ends], accumulate(sizes, initial=0), strict=False))
    program = b""
    for test in tests:
        if test.load is not None:
            program += struct.pack("=HBBI", _LOAD_WORD, 0, 0, test.load)
        behind = places[test] + test.num_instructions
        # More than the 255 instructions that a jump can skip are a `struct.error`.
        skipped = (places[test.yes] - behind, places[test.no] - behind)
        program += struct.pack("=HBBI", test.code, *skipped, test.value)
    return program + b"".join(struct.pack("=HBBI", _RETURN, 0, 0, end) for end in ends)


def _after_what_follows(step: _Test | int) -> Iterator[_Test]:
    if isinstance(step, _Test):
        yield from _after_what_follows(step.yes)
        yield from _after_what_follows(step.no)
        yield step


def _runs(machine: Machine) -> list[tuple[int, _Test | int]]:
    """What to do, by the first of the numbers in a row that have it in common; the last run has no end, and takes in
    x32's numbers."""
    checks = _checks()
    steps: dict[int, _Test | int] = {number: checks[name] for name, number in machine.checked.items()}
    for known, action in ((machine.allowed, ALLOW), (machine.killed, KILL), (machine.refused, _REFUSE)):
        steps |= dict.fromkeys(known.values(), action)
    by_number = [(number, steps.get(number, _MISSING)) for number in range(max(steps) + 2)]
    return [next(run) for _, run in groupby(by_number, key=lambda entry: entry[1])]


def _search(runs: list[tuple[int, _Test | int]]) -> _Test | int:
    if len(runs) == 1:
        return runs[0][1]
    middle = len(runs) // 2
    return _Test(_JUMP_AT_LEAST, runs[middle][0], _search(runs[middle:]), _search(runs[:middle]))


def _checks() -> dict[str, _Test]:
    itself = _decide(0, _JUMP_EQUAL, (_SELF,), ALLOW, _REFUSE)
    connected = _decide(1, _JUMP_ANY_BIT, (_SENDS_ANYWHERE,), _REFUSE, ALLOW)
    return {
        "clone": _decide(0, _JUMP_ANY_BIT, (_NAMESPACE_FLAGS,), _REFUSE, ALLOW),
        "ioctl": _decide(1, _JUMP_EQUAL, _TERMINAL_INJECTION, _REFUSE, ALLOW),
        "prctl": _decide(0, _JUMP_EQUAL, (_SCHEDULE_TOGETHER,), _REFUSE, ALLOW),
        "socket": _decide(0, _JUMP_EQUAL, _SOCKET_FAMILIES, ALLOW, _NO_FAMILY),
        "socketpair": _decide(0, _JUMP_EQUAL, (_UNIX,), connected, _NO_FAMILY),
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


def _decide(argument: int, test: int, values: tuple[int, ...], then: _Test | int, otherwise: int) -> _Test:
    """By the low 32 bits of one argument, which are all that the kernel reads of those we ask about."""
    step: _Test | int = otherwise
    for value in reversed(values):
        step = _Test(test, value, then, step)
    assert isinstance(step, _Test)
    return replace(step, load=_ARGUMENTS_OFFSET + 8 * argument)


def _itself_as(kind: int) -> _Test:
    """For calls whose first argument says what the second one is the number of."""
    itself = _decide(1, _JUMP_EQUAL, (_SELF,), ALLOW, _REFUSE)
    return _Test(_JUMP_EQUAL, kind, itself, _REFUSE, load=_ARGUMENTS_OFFSET)
