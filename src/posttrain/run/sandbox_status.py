"""`posttrain sandbox status`, without the parsing: what isolation a sandbox gives, tried once, and what it has done."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, dataclass
from typing import Any

from posttrain.core.errors import SandboxError
from posttrain.core.protocols import Sandbox
from posttrain.core.registry import build
from posttrain.core.sandbox_status import HasStatus, SandboxStatus
from posttrain.core.sandboxing import ResultClass, SandboxLimits
from posttrain.run.sandbox_spec import sandbox_spec

_LIMITS = SandboxLimits(wall_s=30.0)


@dataclass(frozen=True)
class FoundStatus:
    name: str
    tier: str
    trial_s: float
    """One small execution from asking to its result, on a slot that was there."""
    status: SandboxStatus | None
    """None for a sandbox that cannot be asked."""

    def plain(self) -> dict[str, Any]:
        """As JSON."""
        found = {"sandbox": self.name, "tier": self.tier, "trial_s": self.trial_s}
        if self.status is None:
            return found
        figures = self.status.figures
        return {
            **asdict(self.status),
            **found,
            "start_s": figures.start_s.p50,
            "figures": {**asdict(figures), "slots_live": figures.slots_live},
        }


def sandbox_status(name: str) -> FoundStatus:
    """Raises `UnknownNameError` and `IsolationUnavailableError`, and `SandboxError` where the trial fails."""
    spec = sandbox_spec(name)
    sandbox: Sandbox = build("sandbox", spec)
    tier = str(sandbox.tier)
    trial_s, status = asyncio.run(_try(sandbox))
    return FoundStatus(spec if isinstance(spec, str) else str(spec["name"]), tier, trial_s, status)


async def _try(sandbox: Sandbox) -> tuple[float, SandboxStatus | None]:
    try:
        await _execute(sandbox)  # it may start a slot
        trial_s = await _execute(sandbox)
        status = await asyncio.to_thread(sandbox.status) if isinstance(sandbox, HasStatus) else None
    finally:
        await sandbox.close()
    return trial_s, status


async def _execute(sandbox: Sandbox) -> float:
    started = time.monotonic()
    result = await sandbox.call("def f(x): return x + 1", "f", [[41]], limits=_LIMITS)
    seconds = time.monotonic() - started
    values = [output.value for output in result.outputs]
    if result.run.result_class is not ResultClass.OK or values != [42]:
        raise SandboxError(f"a trial execution ended as {result.run.result_class} with {values}: {result.run.reason}")
    return seconds
