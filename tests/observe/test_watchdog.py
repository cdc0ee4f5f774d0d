from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Callable
from pathlib import Path

from posttrain.observe.progress import QuietProgress
from posttrain.observe.watchdog import Watchdog


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_stall_is_named_once_with_its_phase_and_stacks(tmp_path: Path) -> None:
    stream, clock, stacks = io.StringIO(), Clock(), tmp_path / "logs" / "stacks.txt"
    with Watchdog(QuietProgress(stream), stacks, 60.0, clock) as watchdog:
        watchdog.stage("rl", 100)
        watchdog.phase("verifying", 8)
        clock.now = 59.0
        watchdog.look()
        assert stream.getvalue() == ""
        clock.now = 61.0
        watchdog.look()
        watchdog.look()
    (line,) = stream.getvalue().splitlines()
    assert line == f'nothing moved for 1:01 in the phase "verifying" of rl 0/100; its stacks are in {stacks}'
    assert "test_a_stall_is_named_once" in stacks.read_text()


def test_what_moves_is_no_stall_and_a_second_stall_is_named_again(tmp_path: Path) -> None:
    stream, clock = io.StringIO(), Clock()
    with Watchdog(QuietProgress(stream), tmp_path / "stacks.txt", 60.0, clock) as watchdog:
        moves: list[Callable[[], None]] = [
            lambda: watchdog.phase("generating", 8),
            watchdog.advance,
            lambda: watchdog.step(1, {}),
            lambda: watchdog.stage("rl", 2),
        ]
        for move in moves:
            clock.now += 50
            move()
            watchdog.look()
        assert stream.getvalue() == ""
        for _ in range(2):
            clock.now += 60
            watchdog.look()
            watchdog.advance()
    assert len(stream.getvalue().splitlines()) == 2


def test_the_tasks_of_the_event_loop_are_written_too(tmp_path: Path) -> None:
    clock, stacks = Clock(), tmp_path / "stacks.txt"

    async def waits_for_the_engine() -> None:
        await asyncio.Event().wait()

    async def run() -> None:
        stuck = asyncio.create_task(waits_for_the_engine())
        await asyncio.sleep(0)
        with Watchdog(QuietProgress(io.StringIO()), stacks, 60.0, clock) as watchdog:
            watchdog.phase("generating")
            clock.now = 60.0
            await asyncio.to_thread(watchdog.look)
        stuck.cancel()

    asyncio.run(run())
    assert "waits_for_the_engine" in stacks.read_text()


def test_everything_is_passed_on(tmp_path: Path) -> None:
    heard: list[object] = []

    class Ear:
        def stage(self, name: str, total_steps: int | None, done: int = 0) -> None:
            heard.append((name, total_steps))

        def phase(self, name: str, total: int | None = None) -> None:
            heard.append((name, total))

        def advance(self, amount: int = 1) -> None:
            heard.append(amount)

        def step(self, step: int, values: object) -> None:
            heard.append((step, values))

        def note(self, sentence: str) -> None:
            heard.append(sentence)

    with Watchdog(Ear(), tmp_path / "stacks.txt", 60.0) as watchdog:
        watchdog.stage("rl", 2)
        watchdog.phase("learning", 3)
        watchdog.advance(4)
        watchdog.step(1, {"reward": 1.0})
        watchdog.note("hello")
    assert heard == [("rl", 2), ("learning", 3), 4, (1, {"reward": 1.0}), "hello"]


def test_it_looks_by_itself(tmp_path: Path) -> None:
    barked = threading.Event()

    class Stream(io.StringIO):
        def write(self, text: str) -> int:
            barked.set()
            return super().write(text)

    clock = Clock()
    with Watchdog(QuietProgress(Stream()), tmp_path / "stacks.txt", 0.1, clock):
        clock.now = 1.0
        assert barked.wait(60)
