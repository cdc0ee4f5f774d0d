"""The command lines of docker and podman that the sandbox `container` uses: pure, from limits to arguments.

A container's name says which process made it, so that what a dead process left can be told from what a living one
uses (`owner_of`).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from posttrain.sandbox.inside.contained import BOX
from posttrain.sandbox.inside.program import OPEN_FILES
from posttrain.sandbox.job import SOURCE_BOOTSTRAP, whole_cpu_s
from posttrain.sandbox.order import MIB, Order, max_files
from posttrain.sandbox.walls import environment

LABEL = "posttrain.sandbox"
USER = 65534
_OURS_MIB = 32
"""Memory of pid 1, and of an interpreter before it has read its job."""
_SHM_MIB = 1
# The image's environment, and what a client's configuration adds to it, ends here; its PATH alone is kept.
_CLEAN_START = 'exec env -i "PATH=$PATH" "$@"'


class Owner(NamedTuple):
    """A process, named so that its number can be taken by another one without harm."""

    machine: str
    """Since its last start, and the namespace of process numbers."""
    pid: int
    started: int
    """Ticks since the machine's start."""


@dataclass(frozen=True)
class Engine:
    """What makes containers, and of what."""

    program: Path
    is_podman: bool
    image: str
    runtime: str = ""

    def run(self, name: str, order: Order) -> list[str]:
        """To be asked for a container that is called `name`. Nothing of `order` but its limits is in here: it may be
        seen by whoever lists processes."""
        limits, stdin_bytes = order.limits, len(order.stdin.encode(errors="replace"))
        memory_mib = limits.memory_mib + limits.disk_mib + _SHM_MIB + _OURS_MIB + math.ceil(stdin_bytes / MIB)
        return [
            *(str(self.program), "run", "--name", name, "--label", LABEL, "--interactive"),
            *("--pull", "never", "--log-driver", "none"),
            *("--network", "none", "--ipc", "private", "--hostname", "sandbox"),
            *("--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--user", f"{USER}:{USER}"),
            *("--read-only", "--tmpfs", f"{BOX}:{self._disk(limits.disk_mib)}", "--shm-size", f"{_SHM_MIB}m"),
            *("--memory", f"{memory_mib}m", "--memory-swap", f"{memory_mib}m"),
            *("--pids-limit", str(limits.processes + 1), "--cpus", "1"),
            *("--ulimit", f"cpu={whole_cpu_s(limits) + 1}", "--ulimit", f"nofile={OPEN_FILES}", "--ulimit", "core=0"),
            # Files in memory count too, and we keep standard input in one:
            *("--ulimit", f"fsize={max(limits.disk_mib * MIB, stdin_bytes)}"),
            *self._of_podman,
            *(("--runtime", self.runtime) if self.runtime else ()),
            *("--workdir", "/", "--entrypoint", "sh", self.image, "-c", _CLEAN_START, "sh"),
            *(f"{variable}={value}" for variable, value in environment(None, f"{BOX}/work").items()),
            *("python3", "-s", "-S", "-B", "-c", SOURCE_BOOTSTRAP),
        ]

    def kill(self, name: str) -> list[str]:
        return [str(self.program), "kill", name]

    def remove(self, name: str) -> list[str]:
        """It is ended where it runs."""
        return [str(self.program), "rm", "--force", "--volumes", name]

    def ask_out_of_memory(self, name: str) -> list[str]:
        """Answers "true" where the kernel ended a process of it for the memory of all."""
        return [str(self.program), "container", "inspect", "--format", "{{.State.OOMKilled}}", name]

    def ask_volumes(self) -> list[str]:
        """Answers, as JSON, where the image wants to be writable."""
        return [str(self.program), "image", "inspect", "--format", "{{json .Config.Volumes}}", self.image]

    def list_names(self) -> list[str]:
        """Of all containers that any process of ours has made."""
        return [str(self.program), "ps", "--all", "--filter", f"label={LABEL}", "--format", "{{.Names}}"]

    @property
    def pull(self) -> str:
        """For people to run."""
        return f"{self.program.name} pull {self.image}"

    @property
    def _of_podman(self) -> tuple[str, ...]:
        """Defaults that it has and docker has not: more places to write to, and the proxies of our environment."""
        return ("--read-only-tmpfs=false", "--http-proxy=false") if self.is_podman else ()

    def _disk(self, disk_mib: int) -> str:
        options = f"rw,exec,nosuid,nodev,mode=1777,size={disk_mib}m"
        if self.is_podman:  # it refuses to be told how many files; each takes memory, which is limited
            return options
        return f"{options},nr_inodes={max_files(disk_mib)}"


def name_of(owner: Owner, token: str) -> str:
    """`token`: letters and digits."""
    return f"posttrain-{owner.machine}-{owner.pid}-{owner.started}-{token}"


def owner_of(name: str) -> Owner | None:
    """None where it is no name of ours."""
    found = re.fullmatch(r"posttrain-([0-9a-f]+\.[0-9]+)-([0-9]+)-([0-9]+)-[0-9a-z]+", name)
    return Owner(found[1], int(found[2]), int(found[3])) if found else None
