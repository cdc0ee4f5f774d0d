"""One worker: calls, errors, deaths and ends. `conftest.py` checks after each test that nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from posttrain.core.errors import ConfigError, DeadlineExceededError, WorkerCallError, WorkerDiedError
from posttrain.workers.spec import WorkerSpec
from posttrain.workers.worker import Worker

MakeSpec = Callable[..., WorkerSpec]


def using(spec: WorkerSpec, body: Callable[[Worker], Awaitable[Any]]) -> Any:
    """Run `body` with a worker that is stopped afterwards."""

    async def main() -> Any:
        worker = await Worker.start(spec)
        try:
            return await body(worker)
        finally:
            await worker.stop()

    return asyncio.run(main())


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def until_gone(pid: int) -> None:
    async with asyncio.timeout(30):
        while is_running(pid):
            await asyncio.sleep(0.01)


# ── calls ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_sync_and_async_methods_of_a_configured_part_answer(make_spec: MakeSpec) -> None:
    async def body(worker: Worker) -> None:
        assert await worker.call("greet", "Ada", punctuation="!") == "good day Ada!"
        assert await worker.call("greet_later", "Ada") == "good day Ada"
        assert await worker.call("loop_id") == await worker.call("loop_id")
        assert await worker.call("pid") == worker.pid != os.getpid()

    using(make_spec(config={"greeting": "good day"}), body)


def test_a_hundred_megabytes_go_and_come_back(make_spec: MakeSpec) -> None:
    payload = np.zeros(25 * 2**20, dtype=np.float32)

    async def body(worker: Worker) -> None:
        returned = await worker.call("add_one", payload)
        assert returned.shape == payload.shape
        assert returned.min() == returned.max() == 1.0
        assert payload.max() == 0.0

    using(make_spec(), body)


def test_calls_are_answered_one_at_a_time_in_the_order_they_came(make_spec: MakeSpec) -> None:
    order: list[int] = []

    async def body(worker: Worker) -> None:
        async def ask(number: int) -> None:
            assert await worker.call("echo", number) == number
            order.append(number)

        await asyncio.gather(*(ask(number) for number in range(20)))

    using(make_spec(), body)
    assert order == list(range(20))


def test_one_worker_serves_several_event_loops_in_turn(make_spec: MakeSpec) -> None:
    worker = asyncio.run(Worker.start(make_spec()))
    assert [asyncio.run(worker.call("echo", number)) for number in range(2)] == [0, 1]
    asyncio.run(worker.stop())


def test_what_the_part_prints_goes_to_its_log_and_not_into_answers(make_spec: MakeSpec) -> None:
    spec = make_spec()

    async def body(worker: Worker) -> None:
        await worker.call("say", "a line for people")
        assert await worker.call("echo", 1) == 1

    using(spec, body)
    assert spec.log_path.read_text() == "a line for people\n"


# ── errors ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_exception_of_a_method_comes_back_with_its_traceback_and_the_worker_lives_on(make_spec: MakeSpec) -> None:
    async def body(worker: Worker) -> None:
        with pytest.raises(WorkerCallError, match="worker w: fail raised KeyError: 'no such brick'") as caught:
            await worker.call("fail", "no such brick")
        assert "worker_parts.py" in "".join(caught.value.__notes__)
        assert await worker.call("echo", 1) == 1

    using(make_spec(), body)


def test_error_of_our_family_keeps_its_class_and_its_sentence(make_spec: MakeSpec) -> None:
    async def body(worker: Worker) -> None:
        with pytest.raises(ConfigError) as caught:
            await worker.call("refuse", "bricks must be red")
        assert type(caught.value) is ConfigError
        assert str(caught.value) == "bricks must be red"

    using(make_spec(), body)


def test_unknown_method_is_a_call_error(make_spec: MakeSpec) -> None:
    async def body(worker: Worker) -> None:
        with pytest.raises(WorkerCallError, match="AttributeError"):
            await worker.call("no_such_method")

    using(make_spec(), body)


def test_values_that_cannot_be_pickled_fail_the_call_alone(make_spec: MakeSpec) -> None:
    async def body(worker: Worker) -> None:
        with pytest.raises((AttributeError, TypeError)):
            await worker.call("echo", lambda: None)
        with pytest.raises(WorkerCallError, match="unpicklable raised"):
            await worker.call("unpicklable")
        assert await worker.call("echo", 1) == 1

    using(make_spec(), body)


def test_factory_that_raises_fails_the_start_with_its_traceback(make_spec: MakeSpec) -> None:
    with pytest.raises(WorkerCallError, match="the factory has no bricks") as caught:
        asyncio.run(Worker.start(make_spec("worker_parts:failing_factory")))
    assert "in failing_factory" in "".join(caught.value.__notes__)
    with pytest.raises(ConfigError, match="bricks must be red"):
        asyncio.run(Worker.start(make_spec("worker_parts:refusing_factory")))
    with pytest.raises(WorkerCallError, match="ModuleNotFoundError"):
        asyncio.run(Worker.start(make_spec("no_such_module:factory")))


# ── deaths ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_death_in_a_call_gives_the_reason_and_the_end_of_the_log(make_spec: MakeSpec) -> None:
    async def body(worker: Worker) -> None:
        with pytest.raises(WorkerDiedError, match=r"(?s)answer to exit: it died \(exit code 7\).*leaving with 7"):
            await worker.call("exit", 7)
        assert not worker.alive
        assert not worker.killed
        with pytest.raises(WorkerDiedError, match="exit code 7"):
            await worker.call("echo", 1)

    using(make_spec(), body)


def test_obituary_does_not_quote_an_earlier_workers_log(make_spec: MakeSpec) -> None:
    spec = make_spec()
    spec.log_path.parent.mkdir()
    spec.log_path.write_text("written by another\n")

    async def body(worker: Worker) -> None:
        with pytest.raises(WorkerDiedError) as caught:
            await worker.call("exit", 7)
        assert "written by another" not in str(caught.value)

    using(spec, body)


def test_idle_worker_killed_from_outside_is_noticed(make_spec: MakeSpec) -> None:
    async def body(worker: Worker) -> None:
        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(WorkerDiedError, match=r"signal SIGKILL.*memory runs out"):
            await worker.call("echo", 1)
        assert not worker.alive

    using(make_spec(), body)


def test_death_is_noticed_although_a_grandchild_holds_the_channel(make_spec: MakeSpec) -> None:
    async def body(worker: Worker) -> None:
        with pytest.raises(WorkerDiedError, match="exit code 3"):
            await worker.call("exit_holding_the_channel")

    using(make_spec(), body)


def test_death_before_a_big_request_is_read_is_a_death_and_not_a_broken_pipe(make_spec: MakeSpec) -> None:
    async def body(worker: Worker) -> None:
        os.kill(worker.pid, signal.SIGSTOP)  # it reads nothing any more
        asyncio.get_running_loop().call_later(0.05, os.kill, worker.pid, signal.SIGKILL)
        with pytest.raises(WorkerDiedError, match="signal SIGKILL"):
            await worker.call("echo", np.zeros(2**20))

    using(make_spec(), body)


def test_part_dies_with_its_parent_even_within_a_call(make_spec: MakeSpec, tmp_path: Path) -> None:
    program = f"""
import asyncio
from pathlib import Path
from posttrain.workers.spec import WorkerSpec
from posttrain.workers.worker import Worker
async def main():
    spec = WorkerSpec("w", "worker_parts:Part", Path({str(tmp_path)!r}) / "w.log")
    worker = await Worker.start(spec)
    print(worker.pid, flush=True)
    await worker.call("spin")
asyncio.run(main())
"""
    environment = make_spec().child_environment
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_running(pid)
        parent.kill()
    asyncio.run(until_gone(pid))


# ── ends ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_stop_lets_the_part_close_itself(make_spec: MakeSpec, tmp_path: Path) -> None:
    mark = tmp_path / "closed"

    async def body(worker: Worker) -> None:
        assert not mark.exists()

    using(make_spec(config={"closed_mark": str(mark)}), body)
    assert mark.exists()


def test_stop_waits_for_the_call_under_way(make_spec: MakeSpec) -> None:
    async def body(worker: Worker) -> None:
        call = asyncio.create_task(worker.call("sleep", 0.2))
        await asyncio.sleep(0.05)
        await worker.stop()
        assert await call == "slept 0.2"

    using(make_spec(), body)


def test_stop_kills_a_part_that_does_not_come_back(make_spec: MakeSpec) -> None:
    async def body(worker: Worker) -> None:
        call = asyncio.create_task(worker.call("spin"))
        await asyncio.sleep(0.05)
        await worker.stop(grace_s=0.05)
        with pytest.raises(WorkerDiedError, match="it was stopped"):
            await call

    using(make_spec(), body)


def test_kill_ends_the_call_under_way_and_may_be_repeated(make_spec: MakeSpec) -> None:
    async def body(worker: Worker) -> None:
        call = asyncio.create_task(worker.call("spin"))
        await asyncio.sleep(0.05)
        await worker.kill()
        await worker.kill()
        assert not worker.alive
        with pytest.raises(WorkerDiedError, match="it was killed"):
            await call

    using(make_spec(), body)


def test_cancelled_call_ends_the_process_and_leaves_no_answer_for_the_next(make_spec: MakeSpec) -> None:
    async def body(worker: Worker) -> None:
        call = asyncio.create_task(worker.call("sleep", 0.3))
        await asyncio.sleep(0.05)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert not worker.alive
        with pytest.raises(WorkerDiedError, match="its call sleep was cancelled"):
            await worker.call("echo", "mine")

    using(make_spec(), body)


def test_call_cancelled_while_it_waits_costs_nobody_anything(make_spec: MakeSpec) -> None:
    async def body(worker: Worker) -> None:
        first = asyncio.create_task(worker.call("sleep", 0.2))
        await asyncio.sleep(0.05)
        second = asyncio.create_task(worker.call("echo", "second"))
        third = asyncio.create_task(worker.call("echo", "third"))
        await asyncio.sleep(0)
        second.cancel()
        assert await first == "slept 0.2"
        assert await third == "third"

    using(make_spec(), body)


def test_cancelled_start_leaves_nothing(make_spec: MakeSpec) -> None:
    async def main() -> None:
        start = asyncio.create_task(Worker.start(make_spec()))
        await asyncio.sleep(0.01)
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start

    asyncio.run(main())


def test_waiting_is_not_charged_to_a_calls_deadline(make_spec: MakeSpec) -> None:
    async def body(worker: Worker) -> None:
        first = asyncio.create_task(worker.call("sleep", 1.2))
        await asyncio.sleep(0)
        assert await worker.call("echo", 1, timeout_s=1.0) == 1
        await first

    using(make_spec(), body)


def test_deadline_error_names_worker_method_and_amount(make_spec: MakeSpec) -> None:
    async def body(worker: Worker) -> None:
        with pytest.raises(DeadlineExceededError, match=r"worker w: spin ran out of time: it had 0\.1 s"):
            await worker.call("spin", timeout_s=0.1)

    using(make_spec(), body)
