"""Walls without namespaces, for machines that allow neither those nor root: by explicit opt-in only.

Programs are descendants of ours, with our user, on the host's file system and network. Landlock lets them read the
interpreter and the system's programs and write to one folder; the filter of system calls takes sockets and changes of
modes, owners and times, which Landlock does not judge. What then is left open is said in `status.py`.
"""

from __future__ import annotations

import os
import secrets
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from posttrain.core.errors import IsolationUnavailableError
from posttrain.core.sandboxing import IsolationTier
from posttrain.sandbox.bubblewrap import base_python, find_machine
from posttrain.sandbox.job import BOOTSTRAP, Reduced, Server, reduced_file
from posttrain.sandbox.profile import Profile
from posttrain.sandbox.seccomp import filter_program, on_the_host
from posttrain.sandbox.walls import Launch, environment, interpreter

_CLEAN_UP_S = 60.0
"""A program may have left more folders than a slow disk takes away in a moment."""
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/alternatives")


@dataclass(frozen=True)
class ReducedHost:
    """What executions need from this machine; found once (`find_reduced_host`)."""

    python: Path
    prefix: Path
    seccomp: bytes = field(repr=False)

    @property
    def tier(self) -> IsolationTier:
        return IsolationTier.REDUCED

    @property
    def num_ours(self) -> int:
        """The server counts them (`inside/headcount.py`)."""
        return 0

    def user(self) -> int:
        return os.getuid()

    def launch(self, profile: Profile, *, control: int, info: int) -> Launch:
        """Its folder is where temporary files are (`TMPDIR`)."""
        folder = Path(tempfile.gettempdir(), f"posttrain-box-{secrets.token_hex(8)}")
        packages = list(profile.binds())
        readable = [*map(Path, _SYSTEM), self.prefix, *packages]
        server = Server(
            control=control,
            filter=self.seccomp,
            preload=list(profile.preload),
            paths=[str(folder / "site")] if packages else [],
        )
        reduced = Reduced(
            server=server,
            info=info,
            folder=str(folder),
            readable=[str(path) for path in readable if path.exists()],
            links={package.name: str(package) for package in packages},
        )
        code_fd = reduced_file(reduced)
        work, scratch = folder / "box" / "work", folder / "box" / "tmp"
        return Launch(
            interpreter(self.python, code_fd, BOOTSTRAP),
            code_fd,
            {**environment(self.python, str(work)), "TMPDIR": str(scratch)},
            _CLEAN_UP_S,
        )


def find_reduced_host() -> ReducedHost:
    """Raises `IsolationUnavailableError` for what can be seen without trying; `probe_reduced.py` tries."""
    machine = find_machine()
    if os.geteuid() == 0:
        raise IsolationUnavailableError(
            "isolation 'reduced' is not for root, with whose rights programs would run: run this as an ordinary user, "
            "in a container with `--user 1000`"
        )
    return ReducedHost(base_python(), Path(sys.base_prefix).resolve(), filter_program(on_the_host(machine)))
