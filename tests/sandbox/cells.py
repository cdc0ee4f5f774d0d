"""Sessions for the tests of their interpreters, and what is asked of a cell again and again."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable

from posttrain.core.sandboxing import CellResult, ResultClass, SandboxLimits
from posttrain.sandbox.local import LocalSandbox
from posttrain.sandbox.session import Session

LIMITS = SandboxLimits(wall_s=20.0, cpu_s=10.0, memory_mib=256, processes=8, disk_mib=8)
TREE = {"a.txt": "one\n", "pkg/m.py": "def f(): return 1\n"}
SANDBOX = LocalSandbox()


def within(steps: Callable[[Session], Awaitable[None]], *, background: bool = False) -> None:
    async def run() -> None:
        session = await SANDBOX.session(TREE, limits=LIMITS, background=background)
        try:
            await steps(session)
        finally:
            await session.close()

    asyncio.run(run())


async def cell(session: Session, code: str, **limits: float) -> CellResult:
    return await session.cell(code, limits=dataclasses.replace(LIMITS, **limits))  # type: ignore[arg-type]


async def said(session: Session, code: str) -> str:
    """By a cell of an interpreter that lives."""
    result = await cell(session, code)
    assert result.run.result_class is ResultClass.OK, result
    assert not result.fresh
    return result.run.stdout


async def sh(session: Session, line: str, **limits: float) -> str:
    step = dataclasses.replace(LIMITS, **limits)  # type: ignore[arg-type]
    return (await session.exec(["sh", "-c", line], limits=step)).stdout


async def begin(session: Session, code: str = "x = 41") -> None:
    result = await cell(session, code)
    assert result.run.result_class is ResultClass.OK, result
    assert result.fresh
    assert not result.ended


async def usable(session: Session) -> None:
    """With a fresh interpreter that says so, then with one that keeps its state, and for all else too."""
    await begin(session, "y = 1")
    assert await said(session, "y") == "1\n"
    assert await sh(session, "cat a.txt") == "one\n"
    assert await session.read("a.txt") == b"one\n"
