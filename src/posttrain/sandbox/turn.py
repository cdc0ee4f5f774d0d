"""One execution on a slot: hand over the program, watch, stop it, and know whether the slot is still good.

Leaving the coroutine early, cancelled or not, ends the slot before it returns. What happened is returned as facts
(`Ended`); `outcome.py` judges them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os

from posttrain.core.errors import SandboxError
from posttrain.sandbox.inside.server import ONCE
from posttrain.sandbox.job import sealed_file
from posttrain.sandbox.order import Order
from posttrain.sandbox.slot import Slot
from posttrain.sandbox.watch import Ended, Report, Stop, Talk, Watch, parse_report

_GRACE_S = 2.0
"""Between asking the server to end everything, and ending the server."""
_MAX_PACKET = 256


async def execute_on(slot: Slot, order: Order, talk: Talk | None = None, word: bytes = ONCE) -> Ended:
    """Run `order` to its end. `word` is for the server (`inside/server.py`). A slot that did not report, or whose
    program did not become ready, is closed afterwards."""
    turn = _Turn(slot, order, talk, word)
    try:
        turn.begin()
        await turn.over.wait()
        return turn.ended()
    finally:
        turn.leave()


class _Turn:
    def __init__(self, slot: Slot, order: Order, talk: Talk | None, word: bytes) -> None:
        self.over = asyncio.Event()
        self._watch = Watch(asyncio.get_running_loop(), order.limits, talk, self._on_end)
        self._slot, self._order, self._word = slot, order, word
        self._control, self._server = slot.control.fileno(), slot.server
        self._report: Report | None = None
        self._said = ""
        self._failed = self._lost_to_memory = False

    def begin(self) -> None:
        try:
            self._begin()
        except OSError as error:
            self._fail(error)

    def _begin(self) -> None:
        pipes, slot, order = self._watch.pipes, self._slot, self._order
        stdout, stdout_w = pipes.make()
        stderr, stderr_w = pipes.make()
        answer, answer_w = pipes.make()
        input_r, input_w = pipes.make()
        stdin = pipes.own(_stdin(order.stdin))
        inside = (stdin, stdout_w, stderr_w, input_r, answer_w)
        pipes.on_ready(self._control, self._on_packet)
        # The server itself too: where the socket fails on this side, nothing comes through it any more.
        pipes.on_ready(self._server, self._on_server_end)
        self._watch.begin(job=slot.job(order), stdout=stdout, stderr=stderr, input=input_w, answer=answer)
        slot.submit(order.limits, inside, self._word)
        pipes.close(*inside)

    def ended(self) -> Ended:
        return self._watch.ended(self._report, self._said, lost_to_memory=self._lost_to_memory)

    def leave(self) -> None:
        self._watch.disarm()
        self._deafen()
        try:
            if self._report is None or self._failed or not self._watch.ready:
                self._slot.close()
        except OSError as error:
            raise SandboxError(f"a slot of the sandbox could not be closed: {error}") from error
        finally:
            self._watch.pipes.close_all()

    def _on_packet(self) -> None:
        try:
            packet = self._slot.control.recv(_MAX_PACKET)
        except OSError:
            packet = b""
        if packet:
            reset_us, _, report = packet.partition(b" ")
            self._slot.reset_s = int(reset_us) / 1e6
            try:
                self._report = parse_report(report, out_of_memory=self._slot.ran_out_of_memory())
            except OSError as error:
                self._fail(error)
            else:
                self._finish()
        else:
            self._give_up()

    def _on_end(self, stop: Stop) -> None:
        try:
            self._slot.stop()
        except OSError as error:
            self._fail(error)
        else:
            self._watch.after(_GRACE_S, self._give_up)

    def _fail(self, error: OSError) -> None:
        """What is ours has failed; whatever the program seems to have done then is not its doing."""
        self._failed = True
        self._watch.blame_us(f"{error}; {self._slot.said()}".removesuffix("; "))
        self._give_up()

    def _give_up(self) -> None:
        self._said = self._slot.said()
        with contextlib.suppress(OSError):
            self._lost_to_memory = self._slot.ran_out_of_memory()
        self._slot.kill()
        self._finish()

    def _finish(self) -> None:
        self._watch.pipes.check()
        self._watch.over()
        self._watch.pipes.drain()
        self._deafen()
        self.over.set()

    def _deafen(self) -> None:
        for fd in (self._control, self._server):
            self._watch.pipes.ignore(fd)

    def _on_server_end(self) -> None:
        while not self.over.is_set():
            self._on_packet()


def _stdin(text: str) -> int:
    """Opened anew where it is empty, as position and flags of one that is shared would go from program to program."""
    if not text:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    return sealed_file("posttrain-stdin", text.encode(errors="replace"))
