"""How a child of the fork server gives up what it inherited: capabilities, the rest of the file system, system calls.

Prepared once in the server, applied in each child, by system calls through ctypes. Landlock (struct layouts and
constants: linux/landlock.h) is used as far as the kernel has it. Behind mounts and namespaces it is one wall more: a
pid 1 ignores signals anyway, and read-only mounts hold without its rules. In reduced isolation it is the wall.
"""

# Importing pathlib would cost as much as all the rest:
# ruff: noqa: PTH112

import ctypes
import os
import struct

from posttrain.sandbox.inside.kernel import check, libc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_CAP_AMBIENT, _PR_SET_NO_NEW_PRIVS = 4, 22, 47, 38
_PR_CAP_AMBIENT_CLEAR_ALL, _SECCOMP_MODE_FILTER = 4, 2
_SYS_LANDLOCK_CREATE, _SYS_LANDLOCK_ADD_RULE, _SYS_LANDLOCK_RESTRICT = 444, 445, 446
_LANDLOCK_VERSION, _LANDLOCK_PATH_BENEATH = 1, 1
_CAPABILITIES_VERSION_3 = 0x20080522

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _IOCTL_DEVICE = 1 << 14, 1 << 15
_NUM_FS_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
"""By ABI; 16 from 5 on."""
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE
_BIND_TCP_AND_CONNECT_TCP = 3
_SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS = 3

READ = _EXECUTE | _READ_FILE | _READ_DIR
DEVICE = _READ_FILE | _READ_DIR | _WRITE_FILE | _IOCTL_DEVICE
WRITE = (1 << 16) - 1
"""What a rule allows beneath its path, as far as the kernel knows it; the last is everything."""


class Lockdown:
    """`filter_program` is an array of `struct sock_filter`; `rules` are paths of files and folders that stay, with what
    is allowed there. With `network`, what there is of it in a namespace of its own is left to programs. Raises
    `OSError` where a call is refused."""

    def __init__(self, filter_program: bytes, rules: "Sequence[tuple[str, int]]", *, network: bool) -> None:
        self._filter = ctypes.create_string_buffer(filter_program, len(filter_program))
        self._fprog = ctypes.create_string_buffer(
            struct.pack("@HP", len(filter_program) // 8, ctypes.addressof(self._filter))
        )
        self._no_capabilities = ctypes.create_string_buffer(24)
        self._capability_header = ctypes.create_string_buffer(struct.pack("@Ii", _CAPABILITIES_VERSION_3, 0))
        self.landlock_abi = landlock_abi()
        self._rules, self._network = rules, network
        if self.landlock_abi:
            scopes = _SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS if self.landlock_abi >= 6 else 0
            self._alone, self._among_others = self._ruleset(scopes), self._ruleset(0)

    def apply(self, *, alone: bool) -> None:
        """For this process, which must still have all our descriptors, and all that come of it, for ever. Steps of a
        session are not `alone`: they may signal what earlier ones have left running."""
        check(libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0))
        check(libc.capset(self._capability_header, self._no_capabilities))
        check(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        if self.landlock_abi:
            check(libc.syscall(_SYS_LANDLOCK_RESTRICT, self._alone if alone else self._among_others, 0))
        check(libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, self._fprog, 0, 0))

    def _ruleset(self, scopes: int) -> int:
        """A descriptor."""
        abi = self.landlock_abi
        everything = (1 << _NUM_FS_RIGHTS.get(abi, 16)) - 1
        network = 0 if self._network or abi < 4 else _BIND_TCP_AND_CONNECT_TCP
        attributes = struct.pack("@QQQ", everything, network, scopes)[: 24 if abi >= 6 else 16 if abi >= 4 else 8]
        ruleset: int = check(libc.syscall(_SYS_LANDLOCK_CREATE, attributes, len(attributes), 0))
        for path, rights in self._rules:
            allowed = rights & everything & (WRITE if os.path.isdir(path) else _OF_FILES)
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
            rule = struct.pack("=Qi", allowed, place)
            check(libc.syscall(_SYS_LANDLOCK_ADD_RULE, ruleset, _LANDLOCK_PATH_BENEATH, rule, 0))
            os.close(place)
        return ruleset


def landlock_abi() -> int:
    """0 where the kernel has no Landlock, or somebody keeps us from it."""
    abi: int = libc.syscall(_SYS_LANDLOCK_CREATE, None, 0, _LANDLOCK_VERSION)
    return max(0, abi)


def hide_memory() -> None:
    """No core file of this process and of its children until they execute something, and nobody may trace them."""
    check(libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0))
