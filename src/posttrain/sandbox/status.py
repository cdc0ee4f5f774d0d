"""What this machine's isolation lacks, each with the setting that brings it. It only reads what `probe.py` found."""

from __future__ import annotations

from posttrain.core.sandbox_status import SandboxFigures, SandboxStatus
from posttrain.core.sandboxing import IsolationTier
from posttrain.sandbox.probe import SlotIsolation

NETWORK_ABI, SCOPES_ABI = 4, 6
"""Of Landlock, from which on it has rules for the network, and keeps signals in."""
_NO_CGROUP = "no control group: memory and processes are limited for each process alone, not for a program as a whole"


def local_status(isolation: SlotIsolation, concurrency: int, figures: SandboxFigures) -> SandboxStatus:
    return SandboxStatus(
        tier=isolation.tier,
        concurrency=concurrency,
        figures=figures,
        kernel=isolation.kernel,
        landlock_abi=isolation.landlock_abi,
        cgroup=isolation.cgroup,
        missing=tuple(missing(isolation)),
    )


def missing(isolation: SlotIsolation) -> list[str]:
    """Nothing of it is required: what is required and missing is an error (`probe.py`)."""
    if isolation.tier is IsolationTier.REDUCED:
        return _missing_in_reduced(isolation)
    sentences = []
    if not isolation.cgroup:
        sentences.append(f"{_NO_CGROUP}; run as root, or under `systemd-run --user --scope -p Delegate=yes`")
    if not isolation.landlock_abi:
        sentences.append(
            "no Landlock: read-only mounts alone keep a program from writing outside; boot a kernel of 5.13 or newer "
            "that has CONFIG_SECURITY_LANDLOCK, with `landlock` in its `lsm=` list"
        )
    if isolation.tier is IsolationTier.ROOT_IN_CONTAINER:
        sentences.append(
            "no user namespace: programs run as another user of this machine; run as an ordinary user where user "
            "namespaces are allowed"
        )
    return sentences


def _missing_in_reduced(isolation: SlotIsolation) -> list[str]:
    sentences = [
        "no namespaces: programs run as your own user among your processes, and can tell which paths and processes "
        "there are; take isolation 'full', or the sandbox 'remote' where that is not to be had",
        "no disk of its own: `disk_mib` bounds each file that a program writes, nothing bounds their number and their "
        "sum; set TMPDIR to a folder on a file system of limited size that nobody else needs",
        "no user of its own: the limit of processes lies above the number that your user had when the program started, "
        "so others of yours that start while it runs are taken from it; run as a user who does nothing else",
    ]
    if not isolation.cgroup:
        sentences.append(f"{_NO_CGROUP}; run under `systemd-run --user --scope -p Delegate=yes`")
    if isolation.landlock_abi < NETWORK_ABI:
        sentences.append(
            f"no network rules in Landlock's ABI {isolation.landlock_abi}: the filter of system calls alone keeps a "
            "program from the network; boot a kernel of 6.7 or newer"
        )
    if isolation.landlock_abi < SCOPES_ABI:
        sentences.append(
            f"no scopes in Landlock's ABI {isolation.landlock_abi}: a program can send signals to all processes of "
            "your user, and so end them; boot a kernel of 6.12 or newer"
        )
    return sentences
