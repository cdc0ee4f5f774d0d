"""A work tree that stays between steps, in a slot of its own: layers of an overlay, and verbs on them.

The base of the tree is layer 0. A snapshot freezes the upper layer and puts a new one on it; restoring is another
choice of layers, so neither depends on how much is in the tree. A step is a program like any other, with limits of
its own, and its turn among all executions; what it leaves running ends with it unless the session was opened for
background processes. The interpreter (`interpreter.py`) lives on through steps and file verbs. It ends with a restore,
with tests, and with a snapshot where it, or what it started, has files of the tree open, since an overlay in use cannot
be changed; the next cell says that it has a fresh one. One verb at a time; others wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

from posttrain.core.errors import SandboxError, UserError
from posttrain.core.sandboxing import (
    CellResult,
    IsolationTier,
    ResultClass,
    RunResult,
    SandboxLimits,
    TestOutcome,
    TestResult,
)
from posttrain.sandbox.inside.server import CLOSE, LAYER, QUIT, STACK, STEP, STEP_AND_KEEP, SWEEP, TRUSTED
from posttrain.sandbox.interpreter import Interpreter
from posttrain.sandbox.order import MIB, Order, check_path, run_order
from posttrain.sandbox.outcome import judge
from posttrain.sandbox.records import Record, Records
from posttrain.sandbox.slot import Slot
from posttrain.sandbox.turn import execute_on
from posttrain.sandbox.watch import Ended

_BASE, _FIRST_UPPER, _READ_ONLY = 0, 1, -1
_MAX_SNAPSHOTS_IN_A_ROW = 64
"""An overlay of more is slow, and its options no longer fit into a page."""
_VERB_LIMITS = SandboxLimits(wall_s=60.0, cpu_s=60.0, memory_mib=512, processes=4, output_kib=64)


@dataclass(frozen=True)
class Ground:
    """What a session stands on; `open_another` makes one like it, with another tree."""

    slot: Slot
    tier: IsolationTier
    turn: Callable[[], AbstractAsyncContextManager[None]]
    """To be in while something runs."""
    open_another: Callable[[Mapping[str, str]], Awaitable[Session]]


class Session:
    """Made by `open_session`. Every verb raises `UserError` for what cannot be done and leaves the tree as it was, and
    `SandboxError` where the session is lost or closed."""

    def __init__(
        self,
        ground: Ground,
        resources: AsyncExitStack,
        tree: Mapping[str, str],
        limits: SandboxLimits,
        background: bool,
    ) -> None:
        self._ground, self._resources, self._tree = ground, resources, tree
        self._limits, self._background = limits, background
        self._interpreter = Interpreter(ground.slot, ground.tier, limits, background=background)
        self._upper = _FIRST_UPPER
        self._lowers: tuple[int, ...] = (_BASE,)
        self._last = _FIRST_UPPER
        self._snapshots: dict[str, tuple[int, ...]] = {}
        self._lock = asyncio.Lock()
        self._dropping: asyncio.Task[None] | None = None
        self._closed = False

    async def exec(self, argv: Sequence[str], *, stdin: str = "", limits: SandboxLimits) -> RunResult:
        """`limits.disk_mib` is that of the session, whatever is asked for."""
        order = run_order(argv, None, stdin, replace(limits, disk_mib=self._limits.disk_mib))
        async with self._verb():
            ended = await self._run(order, STEP_AND_KEEP if self._background else STEP)
        return judge(ended, self._ground.tier, order.limits)

    async def cell(self, code: str, *, limits: SandboxLimits) -> CellResult:
        """`limits.memory_mib`, `processes` and `disk_mib` are those of the session, whatever is asked for."""
        async with self._verb():
            result = await self._interpreter.run(code, limits)
            if result.ended and self._ground.slot.alive:
                await self._end_interpreter()  # it may have been done in the moment in which it was stopped
        return result

    async def read(self, path: str) -> bytes:
        return (await self._one("read", _checked(path))).body

    async def write(self, path: str, content: bytes) -> None:
        """Folders on the way are made."""
        await self._one("write", _checked(path), bytes(content))

    async def edit(self, path: str, old: str, new: str) -> None:
        if not old:
            raise UserError(f"{path}: the text to replace is empty")
        await self._one("edit", _checked(path), old, new)

    async def list(self, path: str = ".") -> list[str]:
        body = (await self._one("list", path if path == "." else _checked(path))).body
        return body.decode(errors="replace").split("\0") if body else []

    async def diff(self) -> dict[str, bytes | None]:
        async with self._verb():
            records = await self._trusted("diff")
        return {record.path: None if record.deleted else record.body for record in records}

    async def snapshot(self) -> str:
        async with self._verb():
            if len(self._lowers) > _MAX_SNAPSHOTS_IN_A_ROW:
                raise UserError(f"a session holds at most {_MAX_SNAPSHOTS_IN_A_ROW} snapshots in a row")
            await self._stack(self._last + 1, (self._upper, *self._lowers))
            name = f"snapshot-{self._last}"
            self._snapshots[name] = self._lowers
        return name

    async def restore(self, snapshot: str) -> None:
        """As often as wanted. The folder for temporary files is not part of the tree, and stays as it is."""
        async with self._verb():
            if snapshot not in self._snapshots:
                raise UserError(f"there is no snapshot {snapshot!r} in this session")
            if self._interpreter.alive:
                await self._end_interpreter()
            before = {self._upper, *self._lowers}
            await self._stack(self._last + 1, self._snapshots[snapshot])
            kept = {layer for lowers in self._snapshots.values() for layer in lowers} | {self._upper}
            self._drop_soon(*sorted(before - kept - {_BASE}))

    async def fork(self) -> Session:
        """Another session with the same tree and the same base; snapshots stay behind. It copies what differs."""
        changes = await self.diff()
        twin = await self._ground.open_another(self._tree)
        try:
            await twin._apply(changes)
        except BaseException:
            await twin.close()
            raise
        return twin

    async def run_tests(
        self, tests: Mapping[str, str], expected: Sequence[str], *, limits: SandboxLimits
    ) -> TestResult:
        """Over the tree as it is, when all its processes are dead, with `tests` on top, and read-only. Raises
        `UserError` for no expected ids (law L26)."""
        if not expected:
            raise UserError("a test run needs the ids of the tests that count: none are expected")
        laid = run_order(("-",), tests, "", limits).files
        async with self._verb():
            await self._change(SWEEP)
            self._interpreter.ended()
            layer = await self._lay_tests(laid)
            try:
                before = await self._hash()
                files = sorted({test.partition("::")[0] for test in expected})
                heard = Records(MIB)
                order = Order(replace(limits, disk_mib=self._limits.disk_mib), verb=("test", files))
                ended = await self._run(order, STEP, heard)
                after = await self._hash()
            finally:
                if not self._closed:
                    await self._stack(self._upper, self._lowers)
                    self._drop_soon(layer)
        return TestResult(
            run=judge(ended, self._ground.tier, order.limits),
            outcomes=_outcomes(bytes(heard.data), expected),
            tree_hash_before=before,
            tree_hash_after=after,
        )

    async def close(self) -> None:
        """Idempotent; the slot is free for another."""
        if self._closed:
            return
        self._closed = True
        try:
            await self._dropped()
            self._interpreter.ended()
            if self._ground.slot.alive:
                await self._ground.slot.change(CLOSE)
        except OSError:
            self._ground.slot.close()
        finally:
            await self._resources.aclose()

    # ── how it is done ────────────────────────────────────────────────────────────────────────────────────────

    async def begin(self) -> None:
        async with self._verb():
            await self._change(LAYER, _BASE)
            files = {path: content.encode() for path, content in self._tree.items()}
            _refuse_refused(await self._trusted("lay", _BASE, files))
            await self._stack(_FIRST_UPPER, (_BASE,))

    @asynccontextmanager
    async def _verb(self) -> AsyncIterator[None]:
        async with self._lock:
            if self._closed or not self._ground.slot.alive:
                raise SandboxError("the session is closed" if self._closed else "the session is lost: its server ended")
            await self._dropped()
            async with self._ground.turn():
                yield

    def _drop_soon(self, *layers: int) -> None:
        """Nobody has to wait for it but the next verb, which may need the room."""
        if layers:
            self._dropping = asyncio.create_task(self._drop(layers))

    async def _drop(self, layers: Sequence[int]) -> None:
        async with self._ground.turn():
            await self._run(self._order("drop", list(layers)), TRUSTED)

    async def _dropped(self) -> None:
        if self._dropping:
            await asyncio.shield(self._dropping)  # whoever is cancelled while it waits leaves it alone
            self._dropping = None

    async def _one(self, name: str, *arguments: object) -> Record:
        async with self._verb():
            records = await self._trusted(name, *arguments)
        _refuse_refused(records)
        if len(records) != 1:
            raise SandboxError(f"the sandbox gave {len(records)} answers to {name!r}")
        return records[0]

    async def _apply(self, changes: Mapping[str, bytes | None]) -> None:
        async with self._verb():
            for path, content in changes.items():
                verb = ("remove", path) if content is None else ("write", path, content)
                _refuse_refused(await self._trusted(*verb))

    async def _hash(self) -> str:
        return (await self._trusted("hash"))[0].hash

    async def _lay_tests(self, tests: Mapping[str, str]) -> int:
        self._last += 1
        await self._change(LAYER, self._last)
        files = {path: content.encode() for path, content in tests.items()}
        _refuse_refused(await self._trusted("lay", self._last, files))
        layer, upper, lowers = self._last, self._upper, self._lowers
        await self._change(STACK, _READ_ONLY, layer, upper, *lowers)
        return layer

    async def _stack(self, upper: int, lowers: tuple[int, ...]) -> None:
        await self._change(STACK, upper, *lowers)
        self._upper, self._lowers, self._last = upper, lowers, max(self._last, upper)

    async def _change(self, word: bytes, *numbers: int) -> None:
        try:
            await self._ground.slot.change(word, *numbers)
        except OSError as error:
            if "busy" in str(error) and self._interpreter.alive:
                await self._end_interpreter()
                await self._change(word, *numbers)
            elif "busy" in str(error):
                raise UserError("background processes of the session still use its work tree: end them first") from None
            else:
                self._ground.slot.close()
                raise SandboxError(f"the session is lost: {error}") from error

    async def _end_interpreter(self) -> None:
        """With all that it started, but for background processes."""
        await self._change(QUIT if self._background else SWEEP)
        self._interpreter.ended()

    async def _trusted(self, name: str, *arguments: object) -> Sequence[Record]:
        heard = Records(2 * self._limits.disk_mib * MIB + MIB)
        ended = await self._run(self._order(name, *arguments), TRUSTED, heard)
        run = judge(ended, self._ground.tier, self._limits)
        if run.result_class is ResultClass.INFRASTRUCTURE_ERROR:
            raise SandboxError(f"the session is lost: {run.reason}")
        if run.result_class is not ResultClass.OK:
            raise SandboxError(f"the session could not {name}: {run.reason}")
        try:
            return heard.parse()
        except ValueError as error:
            raise SandboxError(f"the session could not {name}: it answered with {error}") from error

    async def _run(self, order: Order, word: bytes, heard: Records | None = None) -> Ended:
        return await execute_on(self._ground.slot, order, heard, word)

    def _order(self, name: str, *arguments: object) -> Order:
        return Order(replace(_VERB_LIMITS, disk_mib=self._limits.disk_mib), verb=(name, *arguments))


async def open_session(
    ground: Ground, resources: AsyncExitStack, tree: Mapping[str, str], limits: SandboxLimits, *, background: bool
) -> Session:
    """Closes `resources` with the session, and where it cannot begin. Raises `UserError` for a path that leaves the
    tree, and for a tree that does not fit."""
    try:
        order = run_order(("-",), tree, "", limits)
        if not order.fits:
            raise UserError(f"the tree is larger than the {limits.disk_mib} MiB of disk of a session")
        session = Session(ground, resources, order.files, limits, background)
        try:
            await ground.slot.open_box(limits)
            await session.begin()
        except BaseException:
            ground.slot.close()
            raise
    except OSError as error:
        await resources.aclose()
        raise SandboxError(f"a session could not begin: {error}") from error
    except BaseException:
        await resources.aclose()
        raise
    return session


def _checked(path: str) -> str:
    check_path(path)
    return path.removeprefix("./")


def _refuse_refused(records: Sequence[Record]) -> None:
    for record in records:
        if record.refused:
            raise UserError(record.refused)


def _outcomes(said: bytes, expected: Sequence[str]) -> dict[str, TestOutcome]:
    """A test has passed if it says so and nothing says that it failed; what is not expected does not count."""
    passed, failed = set[str](), set[str]()
    for line in said.decode(errors="replace").splitlines():
        outcome, _, test = line.partition(" ")
        (passed if outcome == "passed" else failed if outcome == "failed" else set()).add(test)
    return {
        test: TestOutcome.FAILED if test in failed else TestOutcome.PASSED if test in passed else TestOutcome.MISSING
        for test in expected
    }
