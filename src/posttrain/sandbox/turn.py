"""One execution on a slot: hand over the program, watch, stop it, and know whether the slot is still good.

Leaving the coroutine early, cancelled or not, ends the slot before it returns. What happened is returned as facts
(`Ended`); `outcome.py` judges them.
"""

from __future__ import annotations

import asyncio

from posttrain.sandbox.conversation import Conversation
from posttrain.sandbox.job import sealed_file
from posttrain.sandbox.order import Order
from posttrain.sandbox.slot import Slot
from posttrain.sandbox.watch import Ended, Report, Stop, Watch, parse_report

_GRACE_S = 2.0
"""Between asking the server to end everything, and ending the server."""
_MAX_PACKET = 256


async def execute_on(slot: Slot, order: Order, conversation: Conversation | None = None) -> Ended:
    """Run `order` to its end. A slot that did not report is closed afterwards."""
    turn = _Turn(slot, order, conversation)
    try:
        turn.begin()
        await turn.over.wait()
        return turn.ended()
    finally:
        turn.leave()


class _Turn:
    def __init__(self, slot: Slot, order: Order, conversation: Conversation | None) -> None:
        self.over = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._watch = Watch(self._loop, order.limits, conversation, self._on_end)
        self._slot, self._order = slot, order
        self._report: Report | None = None
        self._said = ""

    def begin(self) -> None:
        pipes, slot, order = self._watch.pipes, self._slot, self._order
        stdout, stdout_w = pipes.make()
        stderr, stderr_w = pipes.make()
        answer, answer_w = pipes.make()
        input_r, input_w = pipes.make()
        stdin = pipes.own(sealed_file("posttrain-stdin", order.stdin.encode(errors="replace")))
        inside = (stdin, stdout_w, stderr_w, input_r, answer_w)
        self._loop.add_reader(slot.control.fileno(), self._on_packet)
        try:
            slot.submit(order.limits, inside)
        except OSError as error:
            self._said = f"its server is gone ({error})"
            self.over.set()
            return
        pipes.close(*inside)
        self._watch.begin(job=slot.job(order), stdout=stdout, stderr=stderr, input=input_w, answer=answer)

    def ended(self) -> Ended:
        return self._watch.ended(self._report, self._said)

    def leave(self) -> None:
        self._watch.disarm()
        self._loop.remove_reader(self._slot.control.fileno())
        try:
            if self._report is None:
                self._slot.close()
        finally:
            self._watch.pipes.close_all()

    def _on_packet(self) -> None:
        try:
            packet = self._slot.control.recv(_MAX_PACKET)
        except OSError:
            packet = b""
        if packet.endswith(b"\n"):
            self._report = parse_report(packet, out_of_memory=self._slot.ran_out_of_memory())
            self._finish()
        elif packet:
            self._slot.reset_s = int(packet) / 1e6
        else:
            self._give_up()

    def _on_end(self, stop: Stop) -> None:
        try:
            self._slot.stop()
        except OSError:
            self._give_up()
        else:
            self._watch.after(_GRACE_S, self._give_up)

    def _give_up(self) -> None:
        self._said = self._slot.said()
        self._slot.kill()
        self._finish()

    def _finish(self) -> None:
        self._watch.over()
        self._watch.pipes.drain()
        self._loop.remove_reader(self._slot.control.fileno())
        self.over.set()
