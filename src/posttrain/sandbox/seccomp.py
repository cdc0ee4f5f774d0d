"""The system calls that a sandboxed program does not get: a small classic-BPF filter, assembled by hand.

Calls that no honest program makes end the process (SIGSYS, which becomes `POLICY_DENIED`); calls that a library may
try and do without are refused with an errno. It is a deny-list on top of namespaces and limits, not a boundary of
its own. Numbers are the kernel's, from its syscall tables for x86_64 and aarch64; other machines have no filter and
hence no sandbox.
"""

from __future__ import annotations

import errno
import struct
from dataclasses import dataclass

ALLOW = 0x7FFF0000
KILL = 0x80000000
_ERRNO = 0x00050000

_LOAD_WORD = 0x20
_JUMP_EQUAL = 0x15
_JUMP_AT_LEAST = 0x35
_JUMP_ANY_BIT = 0x45
_RETURN = 0x06

_ARCH_OFFSET, _NUMBER_OFFSET, _ARGUMENTS_OFFSET = 4, 0, 16
_X32_BIT = 0x40000000
_NAMESPACE_FLAGS = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET."""
_TERMINAL_INJECTION = (0x5412, 0x541C)
"""TIOCSTI, TIOCLINUX."""
_SOCKET_FAMILIES = (1, 2, 10)
"""UNIX, INET, INET6; in particular not VSOCK, which reaches the host of a virtual machine."""


@dataclass(frozen=True)
class Machine:
    audit_arch: int
    killed: tuple[int, ...]
    refused: tuple[int, ...]
    clone: int
    clone3: int
    ioctl: int
    socket: int
    prlimit64: int


_NEW_MOUNT_CALLS = (428, 429, 430, 431, 432, 433, 442)
"""open_tree, move_mount, fsopen, fsconfig, fsmount, fspick, mount_setattr: the same numbers everywhere."""
_SAME_KILLED = (438, 440, *_NEW_MOUNT_CALLS)
"""pidfd_getfd, process_madvise."""
_SAME_REFUSED = (425, 426, 427, 447)
"""io_uring_setup, io_uring_enter, io_uring_register, memfd_secret."""

MACHINES = {
    "x86_64": Machine(
        audit_arch=0xC000003E,
        # ptrace, process_vm_readv, process_vm_writev, kcmp, mount, umount2, pivot_root, chroot, setns, kexec_load,
        # kexec_file_load, init_module, finit_module, delete_module, bpf, perf_event_open, add_key, request_key,
        # keyctl, userfaultfd, name_to_handle_at, open_by_handle_at, acct, swapon, swapoff, reboot, iopl, ioperm
        killed=(
            *(101, 310, 311, 312, 165, 166, 155, 161, 308, 246, 320, 175, 313, 176, 321, 298, 248, 249, 250, 323),
            *(303, 304, 163, 167, 168, 169, 172, 173, *_SAME_KILLED),
        ),
        # unshare, personality, memfd_create, shmget, msgget, semget, mq_open, syslog, fanotify_init, modify_ldt
        refused=(272, 135, 319, 29, 68, 64, 240, 103, 300, 154, *_SAME_REFUSED),
        clone=56,
        clone3=435,
        ioctl=16,
        socket=41,
        prlimit64=302,
    ),
    "aarch64": Machine(
        audit_arch=0xC00000B7,
        killed=(
            *(117, 270, 271, 272, 40, 39, 41, 51, 268, 104, 294, 105, 273, 106, 280, 241, 217, 218, 219, 282),
            *(264, 265, 89, 224, 225, 142, *_SAME_KILLED),
        ),
        refused=(97, 92, 279, 194, 186, 190, 180, 116, 262, *_SAME_REFUSED),
        clone=220,
        clone3=435,
        ioctl=29,
        socket=198,
        prlimit64=261,
    ),
}


def filter_program(machine: Machine) -> bytes:
    """The filter as bwrap's `--seccomp` wants it: an array of `struct sock_filter`."""
    unsupported, refuse = _ERRNO | errno.ENOSYS, _ERRNO | errno.EPERM
    program = [
        _load(_ARCH_OFFSET),
        _jump(_JUMP_EQUAL, machine.audit_arch, 1, 0),
        _return(KILL),
        _load(_NUMBER_OFFSET),
    ]
    if machine.audit_arch == MACHINES["x86_64"].audit_arch:
        program += [_jump(_JUMP_AT_LEAST, _X32_BIT, 0, 1), _return(unsupported)]
    for numbers, action in (
        (machine.killed, KILL),
        (machine.refused, refuse),
        ((machine.clone3,), unsupported),  # its flags are behind a pointer; the C library falls back to clone
    ):
        for number in numbers:
            program += [_jump(_JUMP_EQUAL, number, 0, 1), _return(action)]
    program += _when(machine.clone, 0, [_jump(_JUMP_ANY_BIT, _NAMESPACE_FLAGS, 0, 1), _return(refuse)])
    program += _when(machine.ioctl, 1, _each_equal(_TERMINAL_INJECTION, refuse))
    program += _when(machine.socket, 0, [*_each_equal(_SOCKET_FAMILIES, ALLOW), _return(_ERRNO | errno.EAFNOSUPPORT)])
    # Of itself only: pid 1 is ours, has the same user, and a limit set on it would end it.
    program += _when(machine.prlimit64, 0, [*_each_equal((0,), ALLOW), _return(refuse)])
    return b"".join([*program, _return(ALLOW)])


def _when(number: int, argument: int, body: list[bytes]) -> list[bytes]:
    """Run `body` on the low 32 bits of an argument of one system call; what it does not decide is allowed."""
    block = [_load(_ARGUMENTS_OFFSET + 8 * argument), *body, _return(ALLOW)]
    return [_jump(_JUMP_EQUAL, number, 0, len(block)), *block]


def _each_equal(values: tuple[int, ...], action: int) -> list[bytes]:
    return [part for value in values for part in (_jump(_JUMP_EQUAL, value, 0, 1), _return(action))]


def _load(offset: int) -> bytes:
    return struct.pack("=HBBI", _LOAD_WORD, 0, 0, offset)


def _jump(test: int, value: int, if_true: int, if_false: int) -> bytes:
    return struct.pack("=HBBI", test, if_true, if_false, value)


def _return(action: int) -> bytes:
    return struct.pack("=HBBI", _RETURN, 0, 0, action)
