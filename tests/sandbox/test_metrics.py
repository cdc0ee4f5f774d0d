"""What a sandbox says it did is what it did."""

from __future__ import annotations

import asyncio
import dataclasses
import threading

import pytest

from posttrain.core.errors import SandboxError
from posttrain.core.sandbox_status import HasFigures, HasStatus, Percentiles
from posttrain.core.sandboxing import IsolationTier, ResultClass, SandboxLimits
from posttrain.sandbox import local
from posttrain.sandbox.bubblewrap import Host
from posttrain.sandbox.local import LocalSandbox
from posttrain.sandbox.metrics import SandboxRecord, percentiles
from posttrain.sandbox.pool import Pool
from posttrain.sandbox.probe import slot_isolation
from posttrain.sandbox.profile import Profile
from posttrain.sandbox.slot import Slot
from posttrain.sandbox.status import missing

PYTHON, OTHER = Profile("python"), Profile("other")
LIMITS = SandboxLimits()


class StandInSlot(Slot):
    """Nothing is behind it; `failure` is what its end raises."""

    def __init__(self, profile: Profile, failure: Exception | None = None) -> None:
        self.profile, self.failure, self.open = profile, failure, True

    @property
    def alive(self) -> bool:
        return self.open

    def close(self) -> None:
        self.open = False
        if self.failure:
            raise self.failure


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ([], Percentiles(0.0, 0.0, 0.0)),
        ([3.0], Percentiles(3.0, 3.0, 3.0)),
        ([float(second) for second in range(1, 101)], Percentiles(50.0, 90.0, 99.0)),
        ([1.0, 2.0], Percentiles(1.0, 2.0, 2.0)),
    ],
)
def test_a_percentile_is_a_measurement(seconds: list[float], expected: Percentiles) -> None:
    assert percentiles(seconds) == expected


def test_only_the_last_measurements_count() -> None:
    record = SandboxRecord(window=3)
    for seconds in (100.0, 1.0, 2.0, 3.0):
        record._measured("wait", seconds)
    assert record.figures().wait_s == Percentiles(2.0, 3.0, 3.0)


def test_who_waits_and_who_runs_is_counted_while_it_lasts() -> None:
    record = SandboxRecord()
    with record.waiting():
        assert (record.figures().queued, record.figures().running) == (1, 0)
    with record.running():
        assert (record.figures().queued, record.figures().running) == (0, 1)
    assert (record.figures().queued, record.figures().running) == (0, 0)
    assert record.figures().wait_s.p50 > 0
    assert record.figures().run_s.p50 > 0


def test_who_gives_up_waiting_leaves_no_measurement_and_whose_run_fails_does() -> None:
    record = SandboxRecord()
    with pytest.raises(KeyError), record.waiting():
        raise KeyError
    with pytest.raises(KeyError), record.running():
        raise KeyError
    figures = record.figures()
    assert (figures.queued, figures.running, figures.wait_s.p99) == (0, 0, 0.0)
    assert figures.run_s.p50 > 0


def test_no_count_is_lost_among_threads() -> None:
    record = SandboxRecord()

    def count() -> None:
        for _ in range(2000):
            record.retried()
            record.ended(ResultClass.OK)

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (record.figures().retries, record.figures().ended) == (16_000, {ResultClass.OK: 16_000})


def test_a_pool_counts_its_slots_and_its_line() -> None:
    async def use() -> None:
        pool = Pool(1, StandInSlot)
        async with pool.slot(PYTHON):
            waiting = asyncio.ensure_future(_use(pool, OTHER))
            await asyncio.sleep(0)
            figures = pool.record.figures()
            assert (figures.running, figures.queued, figures.slots_live) == (1, 1, 1)
        await waiting
        assert (pool.record.figures().slots_live, pool.record.figures().queued) == (2, 0)
        await pool.close()
        figures = pool.record.figures()
        assert (figures.slots_created, figures.slots_destroyed, figures.slots_live) == (2, 2, 0)

    asyncio.run(use())


async def _use(pool: Pool, profile: Profile) -> None:
    async with pool.slot(profile):
        pass


def test_what_could_not_be_ended_is_a_leak_and_the_others_are_ended_all_the_same() -> None:
    failures = [SandboxError("a process stays"), OSError("a control group stays"), None]
    slots: list[StandInSlot] = []

    def start(profile: Profile) -> StandInSlot:
        slots.append(StandInSlot(profile, failures[len(slots)]))
        return slots[-1]

    async def use() -> Pool:
        pool = Pool(3, start)
        async with pool.slot(PYTHON), pool.slot(PYTHON), pool.slot(PYTHON):
            pass
        with pytest.raises((SandboxError, OSError), match="stays"):
            await pool.close()
        return pool

    figures = asyncio.run(use()).record.figures()
    assert (figures.leaked_slots, figures.leaked_cgroups, figures.slots_live) == (1, 1, 0)
    assert not any(slot.open for slot in slots)


def test_an_open_session_holds_a_slot_and_is_no_execution() -> None:
    turns, sessions = SandboxRecord(), SandboxRecord()
    with sessions.starting():
        pass
    with sessions.running():
        figures = turns.figures(sessions)
        assert (figures.sessions, figures.running, figures.slots_live) == (1, 0, 1)
    assert turns.figures(sessions).run_s.p99 == 0.0


def test_local_sandbox_says_what_it_did() -> None:
    async def use() -> LocalSandbox:
        sandbox = LocalSandbox(concurrency=1)
        calls = [sandbox.call(f"def f(x): return {value}", "f", [[1]], limits=LIMITS) for value in ("x", "1 / 0", "x")]
        await asyncio.gather(*calls)
        await sandbox.run(["sh", "-c", "exit 3"], limits=LIMITS)
        await sandbox.close()
        return sandbox

    sandbox = asyncio.run(use())
    assert isinstance(sandbox, HasFigures)
    assert isinstance(sandbox, HasStatus)
    status, isolation = sandbox.status(), slot_isolation()
    assert status.figures.ended == {ResultClass.OK: 3, ResultClass.PROGRAM_ERROR: 1}
    assert (status.figures.slots_created, status.figures.slots_live, status.figures.retries) == (1, 0, 0)
    assert 0 < status.figures.start_s.p50 <= status.figures.wait_s.p99
    assert (status.tier, status.kernel, status.cgroup) == (sandbox.tier, isolation.kernel, isolation.cgroup)
    assert status.landlock_abi == isolation.landlock_abi


def test_a_fault_that_passes_is_a_retry_and_one_that_stays_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert slot_isolation()
    num_failures = 2

    def start(host: Host, profile: Profile) -> Slot:
        nonlocal num_failures
        num_failures -= 1
        if num_failures >= 0:
            raise SandboxError("no slot today")
        return Slot(host, profile)

    async def use(sandbox: LocalSandbox) -> None:
        try:
            await sandbox.call("def f(x): return x", "f", [[1]], limits=LIMITS)
        finally:
            await sandbox.close()

    monkeypatch.setattr(local, "Slot", start)
    passing, staying = LocalSandbox(), LocalSandbox()
    asyncio.run(use(passing))
    assert (passing.figures().retries, passing.figures().ended) == (2, {ResultClass.OK: 1})
    num_failures = 100
    asyncio.run(use(staying))
    assert (staying.figures().retries, staying.figures().ended) == (2, {ResultClass.INFRASTRUCTURE_ERROR: 1})
    assert staying.figures().slots_created == 0


def test_what_is_missing_comes_with_the_setting_that_brings_it() -> None:
    whole = dataclasses.replace(slot_isolation(), tier=IsolationTier.FULL, cgroup=True, landlock_abi=6)
    assert missing(whole) == []
    (cgroup,) = missing(dataclasses.replace(whole, cgroup=False))
    assert "systemd-run --user --scope -p Delegate=yes" in cgroup
    (landlock,) = missing(dataclasses.replace(whole, landlock_abi=0))
    assert "CONFIG_SECURITY_LANDLOCK" in landlock
    (user,) = missing(dataclasses.replace(whole, tier=IsolationTier.ROOT_IN_CONTAINER))
    assert "ordinary user" in user
