"""The box of a server that may not mount: a folder that stays, emptied between programs. Nothing bounds its size."""

# Importing pathlib would cost as much as all the rest:
# ruff: noqa: PTH102, PTH106, PTH108, PTH118, PTH208, PTH211

import os

from posttrain.sandbox.inside.box import Box
from posttrain.sandbox.inside.descendants import kill_descendants
from posttrain.sandbox.inside.headcount import Headcount

_OURS_ALONE = 0o700


class Folder(Box):
    """Has no layers, so no session has one. `top` also holds `site`, with links to what programs may import, and what
    is about to be deleted."""

    kill_all = staticmethod(kill_descendants)

    def __init__(self, top: str) -> None:
        super().__init__()
        self.path, self.site = os.path.join(top, "box"), os.path.join(top, "site")
        self._top, self._doomed = top, os.path.join(top, "doomed")
        self._headcount = Headcount()
        self._num_moved = 0

    def make(self, links: "dict[str, str]") -> None:
        """`links`: where to, by name."""
        os.mkdir(self._top, _OURS_ALONE)
        for folder in (self.path, self.site, self._doomed):
            os.mkdir(folder, _OURS_ALONE)
        for name, target in links.items():
            os.symlink(target, os.path.join(self.site, name))

    def fill(self, user: int, megabytes: int, num_files: int) -> None:
        """It is there, and nothing limits it."""
        self.user = user

    def empty(self) -> None:
        """Whatever programs left there: trees of any depth and any mode, and no link is followed. Folders in a folder
        are moved beside it before it goes, so that no path gets long and no two descriptors are open."""
        doomed = os.open(self._doomed, os.O_RDONLY | os.O_DIRECTORY)
        box = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            names = os.listdir(doomed)  # of a server that was ended in the middle of this
            self._num_moved = max([self._num_moved, *map(int, names)])
            names += self._take_out(box, doomed)
            while names:
                name = names.pop()
                folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=doomed)
                try:
                    names += self._take_out(folder, doomed)
                finally:
                    os.close(folder)
                os.rmdir(name, dir_fd=doomed)
        finally:
            os.close(box)
            os.close(doomed)

    def remove(self) -> None:
        """All of it, once nobody is left in there."""
        self.empty()
        for name in os.listdir(self.site):
            os.unlink(os.path.join(self.site, name))
        for folder in (self.path, self.site, self._doomed, self._top):
            os.rmdir(folder)

    def num_others(self) -> int:
        return self._headcount.take()

    def _take_out(self, folder: int, doomed: int) -> list[str]:
        """Folders go to `doomed`, by the numbers that are returned; the rest is deleted."""
        moved = []
        with os.scandir(folder) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for name, is_folder in found:
            if is_folder:
                os.chmod(name, _OURS_ALONE, dir_fd=folder)  # nobody is left who could make a link of it
                self._num_moved += 1
                moved.append(str(self._num_moved))
                os.rename(name, moved[-1], src_dir_fd=folder, dst_dir_fd=doomed)
            else:
                os.unlink(name, dir_fd=folder)
        return moved
