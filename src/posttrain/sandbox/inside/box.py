"""The box: the only place where a program may write, and all that there is between two states of it is a mount.

For one execution it is a fresh tmpfs. For a session, the work tree in it is an overlay: layers are folders with
numbers, kept on the same tmpfs *under* the overlay's mount point, where no path leads; so all that a session writes
counts against one limit, and a snapshot is a new upper layer. Options of the overlay: kernel documentation,
filesystems/overlayfs.rst; `userxattr` lets it be mounted in a user namespace (tmpfs has such attributes from Linux
6.6 on).
"""

# Importing pathlib would cost as much as all the rest:
# ruff: noqa: PTH102, SIM105

import os
from collections.abc import Sequence

from posttrain.sandbox.inside.kernel import check, libc
from posttrain.sandbox.inside.program import BOX, SCRATCH, WORK
from posttrain.sandbox.inside.warden import kill_all

_NO_SUID_NO_DEVICES = 2 | 4


class Box:
    """Of the server, which calls it between programs. Raises `OSError`."""

    kill_all = staticmethod(kill_all)
    """End whoever may be in there; False when there was none left, dead or alive."""

    def __init__(self) -> None:
        self.path = BOX
        self.layers = -1
        """The folder with the layers, while there is a session."""
        self._overlaid = False
        self.user = 0

    def fill(self, user: int, megabytes: int, num_files: int) -> None:
        """A fresh tmpfs of `user`."""
        options = f"size={megabytes}m,nr_inodes={num_files},mode=0755,uid={user},gid={user}".encode()
        check(libc.mount(b"box", BOX.encode(), b"tmpfs", _NO_SUID_NO_DEVICES, options))
        self.user = user

    def keep_layers(self) -> None:
        """From here on it is a session's."""
        with _FilesOf(self.user):
            for path in (WORK, SCRATCH):
                os.mkdir(path)
        self.layers = os.open(WORK, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def make_layer(self, number: int) -> None:
        with _FilesOf(self.user):
            os.mkdir(str(number), dir_fd=self.layers)

    def stack(self, upper: int | None, lowers: Sequence[int]) -> None:
        """Show the layers as the work tree, the first of `lowers` on top of the others; without `upper`, which is made,
        nobody can write to it. Refused while anybody is in there."""
        self._unstack()
        options = "userxattr,lowerdir=" + ":".join(map(str, lowers))
        if upper is not None:
            options += f",upperdir={upper},workdir=w{upper}"
        with _FilesOf(self.user):
            for name in () if upper is None else (str(upper), f"w{upper}"):
                try:
                    os.mkdir(name, dir_fd=self.layers)
                except FileExistsError:
                    pass  # it was the upper layer before
        os.fchdir(self.layers)
        try:
            check(libc.mount(b"work", WORK.encode(), b"overlay", _NO_SUID_NO_DEVICES, options.encode()))
        finally:
            os.chdir("/")
        self._overlaid = True

    def empty(self) -> None:
        """Refused while anybody is in there."""
        self._unstack()
        if self.layers >= 0:
            os.close(self.layers)
            self.layers = -1
        check(libc.umount2(BOX.encode(), 0))

    def num_others(self) -> int:
        """Processes that count against a program's limit and that the host cannot know of."""
        return 0

    def _unstack(self) -> None:
        if self._overlaid:
            check(libc.umount2(WORK.encode(), 0))
            self._overlaid = False


class _FilesOf:
    """What is made inside belongs to `user`."""

    def __init__(self, user: int) -> None:
        self._user = user

    def __enter__(self) -> None:
        libc.setfsgid(self._user)
        libc.setfsuid(self._user)

    def __exit__(self, *_: object) -> None:
        libc.setfsuid(os.geteuid())
        libc.setfsgid(os.getegid())
