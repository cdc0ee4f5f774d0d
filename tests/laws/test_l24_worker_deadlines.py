"""L24: a time limit ends the work by ending a process, from wherever the call is made."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from posttrain.core.errors import DeadlineExceededError, WorkerDiedError
from posttrain.workers.spec import WorkerSpec
from posttrain.workers.worker import Worker

PARTS = Path(__file__).parents[1] / "workers"


def spec_of(factory: str, folder: Path) -> WorkerSpec:
    return WorkerSpec("w", factory, folder / "w.log", environment={"PYTHONPATH": str(PARTS)})


async def overrun(folder: Path, method: str, *args: Any) -> int:
    """Call `method`, which never comes back, with a deadline; returns the number of the process that was to end."""
    worker = await Worker.start(spec_of("worker_parts:Part", folder))
    try:
        with pytest.raises(DeadlineExceededError, match=f"{method} ran out of time"):
            await worker.call(method, *args, timeout_s=0.1)
        assert not worker.alive
        with pytest.raises(WorkerDiedError, match="ran out of time"):
            await worker.call("echo", "a late answer would be taken for this one")
        return worker.pid
    finally:
        await worker.stop()


def in_main_thread(folder: Path, method: str, *args: Any) -> int:
    return asyncio.run(overrun(folder, method, *args))


def in_worker_thread(folder: Path, method: str, *args: Any) -> int:
    pids: list[int] = []
    thread = threading.Thread(target=lambda: pids.append(asyncio.run(overrun(folder, method, *args))))
    thread.start()
    thread.join()
    return pids[0]


def beside_other_work_of_one_event_loop(folder: Path, method: str, *args: Any) -> int:
    async def main() -> int:
        beats = 0

        async def beat() -> None:
            nonlocal beats
            while True:
                beats += 1
                await asyncio.sleep(0.005)

        beating = asyncio.create_task(beat())
        pid = await overrun(folder, method, *args)
        beating.cancel()
        assert beats > 5  # the loop was free all the while
        return pid

    return asyncio.run(main())


PLACES = [in_main_thread, in_worker_thread, beside_other_work_of_one_event_loop]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("call", [("sleep", 600.0), ("spin",), ("stop_yourself",), ("ignore_signals_and_sleep",)])
def test_deadline_ends_the_process(place: Callable[..., int], call: tuple[Any, ...], tmp_path: Path) -> None:
    pid = place(tmp_path, *call)
    assert not Path(f"/proc/{pid}").exists()  # ended and reaped


def test_deadline_ends_what_the_work_had_started(tmp_path: Path) -> None:
    async def main() -> int:
        worker = await Worker.start(spec_of("worker_parts:Part", tmp_path))
        try:
            sleeper: int = await worker.call("start_a_sleeper")
            with pytest.raises(DeadlineExceededError):
                await worker.call("spin", timeout_s=0.1)
            return sleeper
        finally:
            await worker.stop()

    sleeper = asyncio.run(main())
    asyncio.run(until_ended(sleeper))


async def until_ended(pid: int) -> None:
    """Its new parent may take a while to reap it: a zombie has ended."""
    stat = Path(f"/proc/{pid}/stat")
    async with asyncio.timeout(30):
        while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z":
            await asyncio.sleep(0.01)


def test_deadline_ends_a_start_that_hangs(tmp_path: Path) -> None:
    with pytest.raises(DeadlineExceededError, match="its factory ran out of time"):
        asyncio.run(Worker.start(spec_of("worker_parts:hanging_factory", tmp_path), timeout_s=0.3))
