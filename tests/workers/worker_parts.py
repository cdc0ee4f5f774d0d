"""Objects for worker processes to hold in tests: imported by the child as `worker_parts`."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from posttrain.core.errors import ConfigError
from posttrain.core.types import FloatArray


class Part:
    """Does what a test asks of it."""

    def __init__(self, greeting: str = "hello", closed_mark: str = "") -> None:
        self.greeting = greeting
        self.closed_mark = closed_mark

    def greet(self, name: str, *, punctuation: str = "") -> str:
        return f"{self.greeting} {name}{punctuation}"

    async def greet_later(self, name: str) -> str:
        await asyncio.sleep(0)
        return self.greet(name)

    async def loop_id(self) -> int:
        return id(asyncio.get_running_loop())

    def echo(self, value: Any) -> Any:
        return value

    def add_one(self, array: FloatArray) -> FloatArray:
        array += 1  # in place: it must have arrived writable
        return array

    def pid(self) -> int:
        return os.getpid()

    def environment(self, *names: str) -> list[str | None]:
        return [os.environ.get(name) for name in names]

    def say(self, text: str) -> None:
        print(text)

    def sleep(self, seconds: float) -> str:
        time.sleep(seconds)
        return f"slept {seconds}"

    def spin(self) -> None:
        """Holds the interpreter lock for ever: no signal handler of Python's would run."""
        sum(iter(int, 1))

    def fail(self, message: str) -> None:
        raise KeyError(message)

    def refuse(self, message: str) -> None:
        class OwnError(ConfigError):
            pass

        raise OwnError(message)

    def unpicklable(self) -> Any:
        return lambda: None

    def exit(self, code: int) -> None:
        print(f"leaving with {code}", file=sys.stderr)
        os._exit(code)

    def exit_holding_the_channel(self) -> None:
        """Die while a forked grandchild still has every descriptor open."""
        if os.fork():
            os._exit(3)
        time.sleep(60)
        os._exit(0)

    def exit_once(self, mark: str) -> str:
        """Dies unless an earlier worker has left the mark."""
        if Path(mark).exists():
            return "survived"
        Path(mark).touch()
        os._exit(1)

    def stop_yourself(self) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    def ignore_signals_and_sleep(self) -> None:
        for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_IGN)
        time.sleep(600)

    def start_a_sleeper(self) -> int:
        return subprocess.Popen(["sleep", "300"]).pid

    def close(self) -> None:
        if self.closed_mark:
            Path(self.closed_mark).touch()


def failing_factory() -> Part:
    raise OSError("the factory has no bricks")


def refusing_factory() -> Part:
    raise ConfigError("bricks must be red")


def hanging_factory() -> Part:
    time.sleep(600)
    return Part()
