"""The sandbox of this machine: slots that stay, with a server in each that forks a child for every execution.

Every result carries the tier that `probe.py` found by trying; where there is none, the first use raises
`IsolationUnavailableError` and nothing ever runs with less (law L27). A fault of ours is tried again on another slot
and in the end reported as INFRASTRUCTURE_ERROR, never as the program's (law L23).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from typing import Literal

from posttrain.core.errors import ConfigError, SandboxError
from posttrain.core.sandbox_status import SandboxFigures, SandboxStatus
from posttrain.core.sandboxing import (
    SANDBOX_CALLER,
    SESSION_LIMITS,
    CallResult,
    IsolationTier,
    ResultClass,
    RunResult,
    SandboxLimits,
    TestResult,
)
from posttrain.core.types import Json
from posttrain.sandbox.conversation import Conversation
from posttrain.sandbox.order import Order, call_order, run_order
from posttrain.sandbox.outcome import judge, too_many_files
from posttrain.sandbox.pool import Pool
from posttrain.sandbox.probe import SlotIsolation, slot_isolation
from posttrain.sandbox.probe_reduced import reduced_isolation
from posttrain.sandbox.profile import PROFILES, Profile
from posttrain.sandbox.session import Ground, Session, open_session
from posttrain.sandbox.slot import Slot
from posttrain.sandbox.status import local_status
from posttrain.sandbox.turn import execute_on

_ATTEMPTS = 3


@dataclass(frozen=True)
class LocalSandbox:
    """Cheap to make; the machine is probed at the first use or question for the `tier`, once per process. `close` it,
    or its slots stay until this process ends."""

    concurrency: int | None = None
    """Executions at once, and servers for each profile in use; more wait, and their waiting is not charged to them. If
    not given, one more than there are processors for this process, so that none has nothing to do while this process
    takes its part; and one, which is all there can be, in reduced isolation."""
    isolation: Literal["full", "reduced"] = "full"
    """What is required. Nothing but this option brings "reduced", which `SECURITY.md` has the price of: it is for
    machines that allow no namespaces, and has neither `test` nor sessions."""
    sessions: int = 16
    """Open at once, each with a server of its own; more wait."""
    profiles: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict, hash=False)
    """Your own: `{"name": {"preload": ["module"], "distributions": ["package"]}}`, beside python, numpy and pytest."""

    def __post_init__(self) -> None:
        if self._at_once < 1:
            raise ConfigError(f"concurrency of the sandbox 'local' is {self.concurrency}; it must be at least 1")
        if self.isolation == "reduced" and self._at_once > 1:
            raise ConfigError(
                f"concurrency of the sandbox 'local' is {self.concurrency}; with isolation 'reduced' it must be 1, "
                "since all programs have the same user, and limits count by user"
            )
        assert self._profiles  # bad ones are refused now

    @property
    def tier(self) -> IsolationTier:
        """Raises `IsolationUnavailableError`."""
        return _found(self.isolation).tier

    async def call(
        self,
        source: str,
        function: str,
        inputs: Sequence[Sequence[Json]],
        *,
        limits: SandboxLimits,
        profile: str = "python",
    ) -> CallResult:
        """As the protocol says. Tuples stay tuples in both directions. Raises `UserError` for no inputs (law L26)
        and for inputs that are no plain data."""
        order = call_order(source, function, inputs, limits)
        run, conversation = await self._execute(order, self._profile(profile), lambda: Conversation(inputs))
        assert conversation is not None
        return CallResult(run, conversation.outputs())

    async def run(
        self,
        argv: Sequence[str],
        *,
        files: Mapping[str, str] | None = None,
        stdin: str = "",
        limits: SandboxLimits,
    ) -> RunResult:
        """`argv[0]` is looked up where the sandbox has programs: the base interpreter's folder and /usr/bin. `files`
        are laid in the working directory; more than `disk_mib` of them is a DISK_LIMIT. Raises `UserError` for a
        path that leaves the working directory (attack 25)."""
        order = run_order(argv, files, stdin, limits)
        if not order.fits:
            return too_many_files(self.tier, limits)
        run, _ = await self._execute(order, self._profile("python"), lambda: None)
        return run

    async def test(
        self, tree: Mapping[str, str], tests: Mapping[str, str], expected: Sequence[str], *, limits: SandboxLimits
    ) -> TestResult:
        """As the protocol says, by pytest, which must be installed here. Raises `SandboxError` in reduced isolation."""
        self._refuse_reduced("test")
        session = await self.session(tree, limits=limits)
        try:
            return await session.run_tests(tests, expected, limits=limits)
        finally:
            await session.close()

    async def session(
        self, tree: Mapping[str, str], *, limits: SandboxLimits = SESSION_LIMITS, background: bool = False
    ) -> Session:
        """`limits.disk_mib` bounds all that the session writes, its snapshots included. With `background`, processes
        that a step leaves go on; a step that ran into a limit of time or output ends them all. Raises `SandboxError` in
        reduced isolation."""
        self._refuse_reduced("session")
        resources = AsyncExitStack()
        caller = SANDBOX_CALLER.get()
        tier = self.tier
        slot = await resources.enter_async_context(self._session_pool.slot(self._session_profile, caller.name))
        ground = Ground(
            slot=slot,
            tier=tier,
            turn=lambda: self._pool.turn(caller.name, caller.priority),
            open_another=lambda tree: self.session(tree, limits=limits, background=background),
        )
        return await open_session(ground, resources, tree, limits, background=background)

    def figures(self) -> SandboxFigures:
        return self._pool.record.figures(self._session_pool.record)

    def status(self) -> SandboxStatus:
        """Raises `IsolationUnavailableError`."""
        return local_status(_found(self.isolation), self._at_once, self.figures())

    async def close(self) -> None:
        """What runs may end; then the slots go. It cannot be used afterwards."""
        await self._session_pool.close()
        await self._pool.close()

    async def _execute(
        self, order: Order, profile: Profile, converse: Callable[[], Conversation | None]
    ) -> tuple[RunResult, Conversation | None]:
        for attempt in range(_ATTEMPTS):
            conversation = converse()
            run = await self._attempt(order, profile, conversation)
            if run.result_class is not ResultClass.INFRASTRUCTURE_ERROR or attempt == _ATTEMPTS - 1:
                break
            self._pool.record.retried()
        self._pool.record.ended(run.result_class)
        return run, conversation

    async def _attempt(self, order: Order, profile: Profile, conversation: Conversation | None) -> RunResult:
        tier = self.tier
        caller = SANDBOX_CALLER.get()
        try:
            async with self._pool.slot(profile, caller.name, caller.priority) as slot:
                ended = await execute_on(slot, order, conversation)
        except SandboxError as error:
            return RunResult(ResultClass.INFRASTRUCTURE_ERROR, tier, reason=str(error))
        return judge(ended, tier, order.limits, conversation)

    @property
    def _at_once(self) -> int:
        if self.concurrency is None:
            return len(os.sched_getaffinity(0)) + 1 if self.isolation == "full" else 1
        return self.concurrency

    def _refuse_reduced(self, verb: str) -> None:
        if self.isolation == "reduced":
            raise SandboxError(f"the sandbox 'local' has no verb {verb!r} in reduced isolation; it has call and run")

    def _profile(self, name: str) -> Profile:
        if name not in self._profiles:
            known = ", ".join(self._profiles)
            raise SandboxError(f"the sandbox 'local' has no profile {name!r} (known: {known})")
        return self._profiles[name]

    @cached_property
    def _profiles(self) -> dict[str, Profile]:
        return PROFILES | {name: Profile.read(name, settings) for name, settings in self.profiles.items()}

    @cached_property
    def _session_profile(self) -> Profile:
        """With pytest, where it is installed, so that sessions can run tests."""
        return PROFILES["pytest" if find_spec("pytest") else "python"]

    @cached_property
    def _session_pool(self) -> Pool:
        return self._new_pool(self.sessions)

    @cached_property
    def _pool(self) -> Pool:
        return self._new_pool(self._at_once)

    def _new_pool(self, size: int) -> Pool:
        isolation = self.isolation  # not ourselves: a pool's slots go with whoever forgets the sandbox, at once
        return Pool(size, lambda profile: Slot(_found(isolation).host, profile))


def _found(isolation: Literal["full", "reduced"]) -> SlotIsolation:
    return slot_isolation() if isolation == "full" else reduced_isolation()
