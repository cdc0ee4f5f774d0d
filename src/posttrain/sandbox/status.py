"""What this machine's isolation lacks, each with the setting that brings it. It only reads what `probe.py` found."""

from __future__ import annotations

from posttrain.core.sandbox_status import SandboxFigures, SandboxStatus
from posttrain.core.sandboxing import IsolationTier
from posttrain.sandbox.probe import SlotIsolation


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
    sentences = []
    if not isolation.cgroup:
        sentences.append(
            "no control group: memory and processes are limited for each process alone, not for a program as a whole; "
            "run as root, or under `systemd-run --user --scope -p Delegate=yes`"
        )
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
