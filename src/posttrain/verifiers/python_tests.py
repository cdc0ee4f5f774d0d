"""Python functions by name: `ProgramVerifier` behind the `SandboxVerifier` seam.

`gold` is `{"function": name, "tests": [[arguments, expected], …]}`. The reply is the program, or has it in its one
fenced block.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from posttrain.core.protocols import Sandbox
from posttrain.core.sandboxing import SandboxLimits
from posttrain.core.types import Json, Verdict
from posttrain.verifiers.python_code import HiddenTests, ProgramVerifier


@dataclass(frozen=True)
class PythonTests:
    """The program's function answers every hidden test rightly; the share of tests passed is a part."""

    limits: SandboxLimits = field(default_factory=SandboxLimits)
    """Of one execution, which runs all tests."""

    version: ClassVar[str] = "1"

    async def verify(self, reply: str, gold: Json, sandbox: Sandbox) -> Verdict:
        if not isinstance(gold, dict):
            raise ValueError("hidden tests must be a table with a function and tests")
        return await ProgramVerifier(HiddenTests.read(gold), sandbox, self.limits).verify(reply)
