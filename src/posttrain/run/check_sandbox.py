"""`posttrain check sandbox NAME`, without the parsing: a sandbox by its name → attacks contained, expectations met."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from posttrain.core.protocols import Sandbox
from posttrain.core.registry import build
from posttrain.run.sandbox_spec import sandbox_spec
from posttrain.sandbox.attacks.check import AttackResult, check
from posttrain.sandbox.conformance import Conformity, check_conformance


@dataclass(frozen=True)
class CheckedSandbox:
    name: str
    tier: str
    attacks: tuple[AttackResult, ...]
    conformance: tuple[Conformity, ...]

    @property
    def holds(self) -> bool:
        return all(self.attacks) and all(self.conformance)

    def plain(self) -> dict[str, Any]:
        """As JSON; the class of an attack that was not offered is null."""
        return {
            "name": self.name,
            "tier": self.tier,
            "attacks": len(self.attacks),
            "contained": sum(map(bool, self.attacks)),
            "forged_verdicts": sum(attack.forged for attack in self.attacks),
            "conformance": [asdict(conformity) for conformity in self.conformance],
            "by_name": {
                attack.name: {
                    "kind": attack.kind,
                    "contained": attack.contained,
                    "offered": attack.offered,
                    "class": attack.result_class,
                    "expected": list(attack.expected),
                    "neighbour_right": attack.neighbour_right,
                    "reason": attack.reason,
                }
                for attack in self.attacks
            },
        }


def check_sandbox(name: str, progress: Callable[[str], None]) -> CheckedSandbox:
    """`name` is registered, `path/to/file.py:Object` or a TOML table. Raises `UnknownNameError`,
    `IsolationUnavailableError`."""
    sandbox: Sandbox = build("sandbox", sandbox_spec(name))
    tier = str(sandbox.tier)
    attacks, conformance = asyncio.run(_both(sandbox, progress))
    return CheckedSandbox(name, tier, tuple(attacks), tuple(conformance))


async def _both(sandbox: Sandbox, progress: Callable[[str], None]) -> tuple[list[AttackResult], list[Conformity]]:
    try:
        attacks = await check(sandbox, progress=progress)
        conformance = await check_conformance(sandbox)
    finally:
        await sandbox.close()
    progress(f"conformance: {sum(map(bool, conformance))} of {len(conformance)} met")
    return attacks, conformance
