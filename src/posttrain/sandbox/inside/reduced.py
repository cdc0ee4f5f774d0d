"""The outer process of a slot in reduced isolation, and how its child becomes the slot's server.

There is no bubblewrap and no namespace: Landlock and the filter of system calls confine the programs, which are
descendants of the server, with its user. The outer process makes the folder that they get, and when the server has
ended, however it did, it ends whomever that has left and takes the folder away.
"""

import os

from posttrain.sandbox.inside.descendants import adopt_orphans, kill_descendants
from posttrain.sandbox.inside.folder import Folder
from posttrain.sandbox.inside.lockdown import DEVICE, READ, WRITE, landlock_abi
from posttrain.sandbox.inside.program import DEVICES
from posttrain.sandbox.inside.server import serve
from posttrain.sandbox.inside.warden import reap_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from posttrain.sandbox.job import Reduced

MIN_LANDLOCK_ABI = 3
"""Before, a program could empty whatever file its user may write to."""


def start(reduced: "Reduced") -> None:
    """Does not return. Exits with a sentence where something is missing that nothing can stand for."""
    abi = landlock_abi()
    if abi < MIN_LANDLOCK_ABI:
        raise SystemExit(
            f"it needs Landlock's ABI {MIN_LANDLOCK_ABI} or later, and this kernel has {abi or 'none'}: boot Linux 6.2 "
            "or newer with `landlock` in its `lsm=` list, and let the container's filter pass the three landlock calls"
        )
    adopt_orphans()
    os.chdir("/")
    folder = Folder(reduced["folder"])
    folder.make(reduced["links"])
    child = os.fork()
    if child == 0:
        os.close(reduced["info"])
        adopt_orphans()  # a fork does not inherit that
        serve(reduced["server"], folder, _rules(reduced["readable"], folder), network=False)
    os.close(reduced["server"]["control"])
    os.write(reduced["info"], b'{"child-pid": %d}\n' % child)
    os.close(reduced["info"])
    os.waitpid(child, 0)
    while kill_descendants():
        reap_all()
    folder.remove()
    os._exit(0)


def _rules(readable: "list[str]", folder: Folder) -> "list[tuple[str, int]]":
    devices = [(f"/dev/{name}", DEVICE) for name in DEVICES]
    return [*((path, READ) for path in (*readable, folder.site)), *devices, (folder.path, WRITE)]
