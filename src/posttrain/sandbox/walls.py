"""What a slot asks of the walls around it: how its server is started, and as whom programs run. One class for each kind
of walls answers: `bubblewrap.Host` and, by explicit opt-in, `reduced.ReducedHost`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from posttrain.core.sandboxing import IsolationTier
from posttrain.sandbox.profile import Profile


@dataclass(frozen=True)
class Launch:
    """An outer process, which starts the server and outlives it."""

    command: list[str]
    code_fd: int
    """Of our code with its settings, for the command alone; whoever asked for the launch closes it."""
    environment: Mapping[str, str] = field(default_factory=dict)
    clean_up_s: float = 0.0
    """How long the outer process may need for itself when the server is gone; then it is ended."""


class Walls(Protocol):
    @property
    def tier(self) -> IsolationTier: ...

    @property
    def num_ours(self) -> int:
        """How many processes of ours count against the limit of the program's user, as far as it is known here."""
        ...

    def user(self) -> int:
        """Whom an execution runs as, as seen inside."""
        ...

    def launch(self, profile: Profile, *, control: int, info: int) -> Launch:
        """Descriptors that the command gets by these numbers: `control` is the server's end of the socket to the slot,
        and `info` gets a line of JSON with the server's `child-pid`. Raises `ConfigError` for a package that the
        profile needs and that is not installed, and `OSError`."""
        ...


def environment(python: Path | None, work: str) -> dict[str, str]:
    """All that a program finds in its environment; without `python` the PATH is missing, which then is an image's."""
    return {
        **({"PATH": f"{python.parent}:/usr/bin:/bin"} if python else {}),
        "HOME": work,
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",  # the same program gives the same verdict
        "PYTHONDONTWRITEBYTECODE": "1",
        "OPENBLAS_NUM_THREADS": "1",  # threads are processes to a limit, and do not survive a fork
        "OMP_NUM_THREADS": "1",
        "MALLOC_ARENA_MAX": "1",  # arenas reserve 64 MiB each, which RLIMIT_AS would count
    }


def interpreter(python: Path, code_fd: int, bootstrap: str) -> list[str]:
    # With -P and -s, and no variable but ours, this is as isolated as -I, which would ignore our PYTHONHASHSEED.
    return [str(python), "-P", "-s", "-S", "-B", "-c", bootstrap, str(code_fd)]
