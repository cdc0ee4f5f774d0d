"""All attacks, by family. A new attack is a record in its family's file; nothing else needs to change."""

from __future__ import annotations

from collections.abc import Mapping

from posttrain.sandbox.attacks import endings, files, kernel, network, processes, resources, state, verdicts
from posttrain.sandbox.attacks.attack import Attack

FAMILIES: Mapping[str, tuple[Attack, ...]] = {
    "processes and signals": processes.ATTACKS,
    "files and secrets": files.ATTACKS,
    "network and ipc": network.ATTACKS,
    "resources": resources.ATTACKS,
    "kernel surface": kernel.ATTACKS,
    "state and descriptors": state.ATTACKS,
    "odd endings": endings.ATTACKS,
    "forged verdicts": verdicts.ATTACKS,
}
