"""The sandbox that runs every execution in a container of its own, made by docker or podman, from an image of yours.

For languages and libraries that this machine has not, and, with a `runtime` like runsc, for a kernel of its own. It
costs what a container costs, some tenths of a second for each execution.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

from posttrain.core.errors import ConfigError
from posttrain.core.sandboxing import IsolationTier
from posttrain.sandbox.container_execution import execute_in
from posttrain.sandbox.container_probe import container_isolation, find_engine
from posttrain.sandbox.per_execution import Execute, PerExecutionSandbox


@dataclass(frozen=True)
class ContainerSandbox(PerExecutionSandbox):
    """Guaranteed, and tried once at the first use: no network; a read-only system; one place to write, /tmp, with a
    size; another user than root, without privileges or a way to gain any; processes and memory limited for all of an
    execution together; time from the program's first instruction on; nothing of this machine's files or environment.
    A verdict cannot be forged by writing where ours do: the program has other pipes than the container.

    Not guaranteed: system calls are only those filtered that the engine filters, and there is no Landlock; started by
    root, as docker usually is, there is no user namespace (tier `root_in_container`; a rootless engine has `full`);
    whoever may use docker is as good as root here, this process included; podman does not limit the number of files;
    /dev/shm is 1 MiB more to write to. Containers that a killed process leaves end by themselves, and are removed by
    the next one on this machine that uses such a sandbox.

    The image needs sh, env and python3 (3.9 or newer), and may not declare volumes. It is never pulled from here.
    Programs are looked up in the image's own PATH; `call` sees the standard library alone."""

    NAME: ClassVar[str] = "container"

    program: Literal["", "docker", "podman"] = ""
    """Empty: the first of the two that is installed."""
    image: str = "python:3.11-slim"
    runtime: str = ""
    """Of containers, as the program knows it, like runsc; empty: its default."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for option, value in {"image": self.image, "runtime": self.runtime}.items():
            if value.startswith("-") or value != value.strip() or (option == "image" and not value):
                raise ConfigError(f"{option} of the sandbox 'container' is {value!r}; it must be a name")

    def _found(self) -> tuple[IsolationTier, Execute]:
        engine = find_engine(self.program, self.image, self.runtime)
        return container_isolation(engine), partial(execute_in, engine)

    async def _find(self) -> tuple[IsolationTier, Execute]:
        return await asyncio.to_thread(self._found)
