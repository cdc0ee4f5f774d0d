from __future__ import annotations

import io
import os
import pty
import threading

import pytest

from posttrain.core.protocols import Observer
from posttrain.observe.live import LiveProgress
from posttrain.observe.progress import HEARTBEAT_S, PlainProgress, QuietProgress, progress


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class ClosedStream(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError(text)


def drive(observer: Observer) -> None:
    observer.stage("rl", 100)
    observer.phase("generating", 128)
    observer.advance(40)
    observer.step(1, {"reward": 0.5, "pass/words": 0.25, "tokens_per_s": 300.0})
    observer.note("one [sentence] for people")


def test_plain_output_is_one_line_a_step() -> None:
    stream, clock = io.StringIO(), Clock()
    with PlainProgress(stream, clock) as observer:
        drive(observer)
        clock.now += 60
        observer.step(2, {"reward": 0.75})
    assert stream.getvalue().splitlines() == [
        "stage rl, 100 steps",
        "rl 1/100  reward 0.500  pass words 0.25  300 tokens/s",
        "one [sentence] for people",
        "rl 2/100  reward 0.750  1:38:00 left",
    ]


def test_plain_output_is_never_silent_for_five_seconds() -> None:
    assert HEARTBEAT_S + 0.5 <= 5.0, "the thread looks every half second"
    stream, clock = io.StringIO(), Clock()
    with PlainProgress(stream, clock) as observer:
        observer.stage("rl", 100)
        observer.phase("generating", 128)
        observer.advance(40)
        clock.now = HEARTBEAT_S - 0.1
        observer.heartbeat()
        assert len(stream.getvalue().splitlines()) == 1
        clock.now = HEARTBEAT_S
        observer.heartbeat()
        observer.heartbeat()
    assert stream.getvalue().splitlines()[1:] == ["… rl 0/100: generating 40/128, 4 s"]


def test_the_heartbeat_comes_from_a_thread_of_its_own() -> None:
    said = threading.Event()

    class Stream(io.StringIO):
        def write(self, text: str) -> int:
            if text.startswith("…"):
                said.set()
            return super().write(text)

    clock = Clock()
    with PlainProgress(Stream(), clock) as observer:
        observer.phase("loading the model")
        clock.now += 10
        assert said.wait(60), "the driver does nothing, and still it is said what goes on"


def test_quiet_output_is_notes_alone() -> None:
    stream = io.StringIO()
    with QuietProgress(stream) as observer:
        drive(observer)
    assert stream.getvalue() == "one [sentence] for people\n"


def test_a_stream_that_is_gone_does_not_stop_the_run() -> None:
    with PlainProgress(ClosedStream()) as observer:
        drive(observer)


def test_nothing_is_printed_after_close() -> None:
    stream = io.StringIO()
    observer = PlainProgress(stream)
    observer.close()
    observer.close()
    observer.note("late")
    assert stream.getvalue() == ""


def test_a_stream_that_is_no_terminal_gets_plain_lines() -> None:
    with progress(io.StringIO()) as plain, progress(io.StringIO(), quiet=True) as quiet:
        assert isinstance(plain, PlainProgress)
        assert isinstance(quiet, QuietProgress)


def on_terminal(monkeypatch: pytest.MonkeyPatch, **environment: str) -> tuple[str, type]:
    """What a run writes to a pseudo-terminal, and the kind of display that wrote it."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    controller, terminal = pty.openpty()
    with os.fdopen(terminal, "w", encoding="utf-8") as stream:
        observer = progress(stream)
        drive(observer)
        observer.stage("late", None)
        observer.close()
    text = b""
    while True:
        try:
            read = os.read(controller, 65536)
        except OSError:  # the other end is closed and everything was read
            break
        if not read:
            break
        text += read
    os.close(controller)
    return text.decode(), type(observer)


def test_a_terminal_gets_a_live_block(monkeypatch: pytest.MonkeyPatch) -> None:
    text, kind = on_terminal(monkeypatch)
    assert kind is LiveProgress
    assert "generating" in text
    assert "words" in text
    assert "1/100" in text
    assert "one [sentence] for people" in text
    assert "rl 1/100  reward 0.500  pass words 0.25" in text, "the last step of a stage stays"
    assert "\x1b[36m" in text


def test_no_color_is_honoured_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    text, kind = on_terminal(monkeypatch, NO_COLOR="1")
    assert kind is LiveProgress
    assert "\x1b[36m" not in text
    assert "generating" in text


def test_a_terminal_that_cannot_redraw_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    text, kind = on_terminal(monkeypatch, TERM="dumb")
    assert kind is PlainProgress
    assert "\x1b" not in text
